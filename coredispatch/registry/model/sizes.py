"""What a size is: the length of a dimension, and how a list of them, and a dim, is read.

Factories, ``reshape``, ``expand`` and every operator that takes a length ask here, so that a
negative or an impossible one is refused in the same words everywhere, by the name of the argument.

A length may be a :class:`Symbol`, which is not known yet. Code that takes a size asks
:func:`as_int`, never ``operator.index`` or ``int``, which would force it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

from coredispatch.registry.model.errors import ArgumentError, DimError, DTypeError, ShapeError

__all__ = [
    "check_reinterpreted",
    "contiguous_strides",
    "MOST_ELEMENTS",
    "Symbol",
    "as_int",
    "as_size",
    "as_sizes",
    "at_least",
    "expand_size",
    "infer_size",
    "is_int",
    "is_size",
    "lesser",
    "normalize_dim",
    "normalize_dims",
]

#: what 64 bits can address, with the 16 bytes of the widest element
MOST_ELEMENTS = (1 << 59) - 1


class Symbol:
    """A length that is not known yet; a layer that captures programs makes subclasses of it.

    It stands wherever a size may: in factories on the device ``meta``, in ``reshape`` and
    ``expand``, in shapes. A subclass defines arithmetic (the results are symbols again) and
    comparisons, whose answers are what the program then depends on. The framework itself never
    converts it to an int. Registered with ``numbers.Number`` it is also a number among operands:
    ``x / n``, and with it the gradient of a mean.

    Attributes:
        example: an int that it may be, for decisions that the program does not depend on.
    """

    example: int

    __slots__ = ()

    def lesser(self, other: Any) -> Any:
        """The lesser of two lengths. A subclass may leave open which one it is."""
        return min(self, other)

    def at_least(self, bound: Any) -> bool:
        """``self >= bound``, where either answer leads to the same result."""
        return bool(self >= bound)


def lesser(one: Any, other: Any) -> Any:
    """``min(one, other)`` of two lengths, without asking a :class:`Symbol` which one it is."""
    if isinstance(one, Symbol):
        return one.lesser(other)
    return other.lesser(one) if isinstance(other, Symbol) else min(one, other)


def at_least(value: Any, bound: Any) -> bool:
    """``value >= bound``, for a choice among ways to the same result.

    A program does not depend on such an answer about a :class:`Symbol`, but may run faster by it.
    """
    return value.at_least(bound) if isinstance(value, Symbol) else bool(value >= bound)


def is_int(value: Any) -> bool:
    """Whether ``value`` is an int or a :class:`Symbol`: one number, where a list might stand."""
    return isinstance(value, (int, Symbol))


def as_int(value: Any) -> Any:
    """``value`` as an int, or the :class:`Symbol` that it is; raises ``TypeError`` otherwise."""
    return value if isinstance(value, Symbol) else operator.index(value)


def is_size(value: Any) -> bool:
    """Whether ``value`` is an integer that a dimension can be long, or a :class:`Symbol`."""
    if isinstance(value, Symbol):
        return True
    try:
        return 0 <= operator.index(value) <= MOST_ELEMENTS
    except TypeError:
        return False


def as_size(value: Any, name: str = "size") -> int:
    """``value`` as the length of a dimension.

    Raises :class:`DTypeError` unless it is an integer, :class:`ArgumentError` for a negative
    one and for one beyond :data:`MOST_ELEMENTS`. A :class:`Symbol` is itself.
    """
    if isinstance(value, Symbol):
        return value  # type: ignore[return-value]
    try:
        length = operator.index(value)
    except TypeError:
        raise DTypeError(
            f"{name} must be an integer, not {type(value).__name__} ({value!r})",
            fix="round it first, for example with int(...)",
        ) from None
    if length < 0:
        raise ArgumentError(f"{name} must not be negative, got {length}", fix=f"use {name} >= 0")
    if length > MOST_ELEMENTS:
        raise ArgumentError(
            f"{name} {length} is more than the 2**59 - 1 elements that a tensor can have",
            fix="use a smaller one",
        )
    return length


def as_sizes(values: Sequence[Any], name: str = "size") -> tuple[int, ...]:
    """``values`` as the lengths of a tensor's dimensions.

    Raises what :func:`as_size` raises, and :class:`ArgumentError` where the lengths multiply to
    more than :data:`MOST_ELEMENTS`.
    """
    sizes = tuple(values)
    for length in sizes:
        if type(length) is not int or not 0 <= length <= MOST_ELEMENTS:
            sizes = tuple([_listed(n, sizes, name) for n in sizes])
            if any(isinstance(n, Symbol) for n in sizes):
                return sizes
            break
    if prod(sizes) > MOST_ELEMENTS:
        raise ArgumentError(
            f"{name} {sizes} multiplies to {prod(sizes)} elements, more than the 2**59 - 1 that a "
            "tensor can have",
            fix="use smaller sizes",
        )
    return sizes


def normalize_dim(dim: int, ndim: int) -> int:
    """``dim`` counted from the front. A 0-dim tensor accepts 0 and -1, as in PyTorch.

    Raises :class:`DimError` when ``dim`` is out of range.
    """
    limit = ndim or 1
    if not -limit <= dim < limit:
        raise DimError(
            f"Dimension out of range: a {ndim}-d tensor has no dim {dim}",
            fix=f"use a dim from {-limit} to {limit - 1}",
        )
    return dim + limit if dim < 0 else dim


def normalize_dims(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """The dims to reduce, counted from the front; None and an empty sequence mean all.

    Raises :class:`DimError` when one is out of range or named twice.
    """
    if dim is None:
        return tuple(range(ndim))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if not dims:
        return tuple(range(ndim))
    dims = tuple([normalize_dim(d, ndim) for d in dims])
    if len(set(dims)) != len(dims):
        raise DimError(f"dim {dims} names a dimension twice", fix="name each dimension once")
    return dims if ndim else ()


def _listed(value: Any, sizes: tuple[Any, ...], name: str) -> int:
    """:func:`as_size` of one of several lengths; an error shows them all."""
    if len(sizes) == 1 or is_size(value):
        return as_size(value, name)
    try:
        length = operator.index(value)
    except TypeError:
        return as_size(value, f"each length of {name} {sizes}")
    raise ArgumentError(
        f"{name} {sizes} has the length {length}, "
        + ("which is negative" if length < 0 else "more than the 2**59 - 1 elements of a tensor"),
        fix="use lengths >= 0" if length < 0 else "use smaller lengths",
    )


def check_reinterpreted(
    shape: Sequence[int], strides: Sequence[int], offset: int, size: int, new: int, names: str
) -> None:
    """Refuse to read elements of ``size`` bytes as elements of ``new`` bytes that would not lie at
    multiples of their size: a device faults where it reads them.

    Args:
        shape: lengths of the tensor that is read.
        strides: its steps in bytes. The last one is ``size``, which is for the caller to see to.
        offset: bytes from the start of its storage to its first element.
        size: bytes of one of its elements.
        new: bytes of one element of the view.
        names: both dtypes, as in ``"uint8 as float32"``.

    Raises :class:`ShapeError`, as PyTorch does, where ``new`` divides neither offset nor steps.

    Example:
        >>> check_reinterpreted((8,), (1,), 4, 1, 4, "uint8 as float32")
    """
    if new <= size or 0 in shape:
        return
    ratio, given = new // size, f"to view {names} (different element sizes), but got"
    steps = [k for k, n in enumerate(shape[:-1]) if n > 1 and strides[k] % new]
    if offset % new:
        found = f"self.storage_offset() must be divisible by {ratio} {given} {offset // size}"
    elif steps:
        step = strides[steps[0]] // size
        found = f"self.stride({steps[0]}) must be divisible by {ratio} {given} {step}"
    else:
        return
    raise ShapeError(found, fix="clone() it first: a copy has memory of its own")


def infer_size(shape: Sequence[Any], count: int, name: str = "shape") -> tuple[int, ...]:
    """``shape`` for ``count`` elements, with its one -1 worked out.

    Raises :class:`ShapeError` for a second -1, for any other negative length, and where ``count``
    elements do not fill the shape.
    """
    sizes = [as_int(n) for n in shape]
    shown = tuple(sizes)
    if any(isinstance(n, Symbol) for n in (*sizes, count)):
        return _infer_symbolic(sizes, count, name)
    wrong = next((n for n in sizes if n < -1), None)
    if wrong is not None:
        raise ShapeError(
            f"{name} {shown} has the negative length {wrong}",
            fix="use lengths >= 0, and -1 for at most one of them",
        )
    if sizes.count(-1) > 1:
        raise ShapeError(f"{name} {shown} leaves more than one length open", fix="use one -1")
    known = prod(n for n in sizes if n != -1)
    if -1 in sizes:
        if known == 0 or count % known:
            raise ShapeError(
                f"{count} elements do not divide into {name} {shown}",
                fix="write the length out instead of -1"
                if known == 0
                else f"make the other lengths multiply to a divisor of {count}, not to {known}",
            )
        sizes[sizes.index(-1)] = count // known
    elif known != count:
        raise ShapeError(
            f"{name} {shown} has {known} elements, and the tensor has {count}",
            fix="use -1 for one of the lengths to have it worked out",
        )
    return tuple(sizes)


def _infer_symbolic(sizes: list[Any], count: Any, name: str) -> tuple[Any, ...]:
    """:func:`infer_size` with a symbol: that the lengths divide the count is taken on trust."""
    open_ = [i for i, n in enumerate(sizes) if not isinstance(n, Symbol) and n == -1]
    if len(open_) > 1:
        raise ShapeError(
            f"{name} {tuple(sizes)} leaves more than one length open", fix="use one -1"
        )
    known: Any = prod(n for i, n in enumerate(sizes) if i not in open_)
    if open_:
        sizes[open_[0]] = count // known
    elif known is not count and known != count:  # this asks the symbol
        raise ShapeError(
            f"{name} {tuple(sizes)} has {known} elements, and the tensor has {count}",
            fix="use -1 for one of the lengths to have it worked out",
        )
    return tuple(sizes)


def expand_size(shape: Sequence[int], size: Sequence[Any]) -> tuple[int, ...]:
    """What a tensor of ``shape`` expanded to ``size`` has for a shape; -1 keeps a length.

    Raises :class:`ShapeError` where a length other than 1 would change, for fewer sizes than
    dimensions, and for a negative length other than a -1 in the place of an old one.
    """
    have, wanted = tuple(shape), tuple([as_int(n) for n in size])
    lead = len(wanted) - len(have)
    if lead < 0:
        raise ShapeError(
            f"a tensor of shape {have} cannot expand to {wanted}, which has fewer dimensions",
            fix=f"give at least {len(have)} sizes",
        )
    result: list[Any] = []
    for i, n in enumerate(wanted):
        old: Any = have[i - lead] if i >= lead else None
        symbolic = isinstance(n, Symbol)
        if not symbolic and n == -1 and old is not None:
            result.append(old)
            continue
        if not symbolic and n < 0:
            raise ShapeError(
                f"size {wanted} has {n} at dimension {i}, which is "
                + ("negative" if n < -1 else "a new one and has no length to keep"),
                fix="use lengths >= 0, or -1 to keep the length of a dimension the tensor has",
            )
        # In this order, so that a symbol is asked only where the answer is not plain.
        stays = old is None or n is old or (type(old) is int and old == 1)
        if not (stays or n == old or old == 1):
            raise ShapeError(
                f"shape {have} does not expand to {wanted}: dimension {i} has length {old}, "
                f"{n} is asked for",
                fix="only lengths of 1 expand",
            )
        result.append(n)
    return as_sizes(result)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a row-major tensor of ``shape``."""
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))
