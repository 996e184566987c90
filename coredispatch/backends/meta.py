"""The backend ``meta``: shapes and dtypes without data.

It has no kernels. Its generic kernel serves every op that states a shape and a dtype rule;
composites without rules run their decompositions.

A meta tensor knows how it would lie in memory: a graph without data learns so which results are
views. What a factory makes lies in row-major order, and views of it follow. How a kernel lays out
its result is the kernel's affair: in row-major order, as a rule, where its arguments lie so, else
its strides are a guess. A view is refused for certain strides alone.
Lengths that are symbols count as their examples, and are not asked: nothing is guarded by how
memory lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from coredispatch.plugin import (
    Backend,
    CallEntry,
    CoreDispatchError,
    DataDependentError,
    DType,
    KernelError,
    Operator,
    OpError,
    Registrar,
    ShapeError,
    Symbol,
    Value,
    as_int,
    bump_version,
    check_types,
    contiguous_strides,
    describe_call,
    dtypes,
    from_raw,
    hookimpl,
    link_results,
    result_dtype,
)

__all__ = ["MetaArray", "MetaBackend", "coredispatch_register"]


#: steps between neighbours along each dimension, in elements
_Strides = tuple[int, ...]


@dataclass(frozen=True)
class MetaArray:
    """A shape and a dtype, and how elements would lie in memory.

    Attributes:
        shape: the lengths, ints and symbols.
        dtype: the element type.
        order: strides in elements, None for row-major order. Symbols count as their examples.
        base: the array that this one is a view of.
        doubt: 0 where it lies so on every backend, 1 where kernels do as a rule, 2 for a guess.
    """

    shape: tuple[int, ...]
    dtype: DType
    order: _Strides | None = None
    base: MetaArray | None = field(default=None, repr=False, compare=False)
    doubt: int = field(default=0, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.shape) is not tuple or not all(type(n) is int for n in self.shape):
            object.__setattr__(self, "shape", tuple(as_int(n) for n in self.shape))

    @property
    def strides(self) -> _Strides:
        """The strides, also where they are those of row-major order."""
        return contiguous_strides(_lengths(self.shape)) if self.order is None else self.order

    def shares(self, other: MetaArray) -> bool:
        """Whether both are views of one array."""
        return self._owner() is other._owner()

    def _owner(self) -> MetaArray:
        array = self
        while array.base is not None:
            array = array.base
        return array


def _meta(entry: CallEntry, args: tuple[Any, ...]) -> Any:
    """Run the rules of the op instead of a kernel."""
    op = entry.op
    assert isinstance(op, Operator)
    try:
        check_types(op, args)
        for written in op.schema.written(args):
            _check_writable(written.raw)
        if op.schema.returns == "None" and op.decomposition is None:
            return _written(op, args, None)
        if op.out_rule is None or op.dtype_rule is None:
            if op.decomposition is None:
                raise KernelError("the operator states no shape or dtype rule", fix="add them")
            return entry.decompose(args)
        shapes, dtypes = op.out_rule(*args), result_dtype(op, args)
        if op.kind == "composite" and op.view and op.name not in _VIEWS:
            return entry.decompose(args)  # down to views whose strides are known
        if not op.schema.multi_output:
            return _written(op, args, from_raw(_made(op, args, shapes, dtypes), backend="meta"))
        if not isinstance(dtypes, (tuple, list)):
            dtypes = [dtypes] * len(shapes)
        made = [_made(op, args, *known) for known in zip(shapes, dtypes, strict=True)]
    except CoreDispatchError as error:
        error.call = error.call or describe_call(op, args)
        raise
    return _written(op, args, op.result_type([from_raw(raw, backend="meta") for raw in made]))


def _check_writable(raw: Any) -> None:
    """Refuse to write where elements share memory for certain, as NumPy does."""
    if isinstance(raw, MetaArray) and raw.doubt == 0 and raw.order is not None:
        lengths = _lengths(raw.shape)
        if 0 not in lengths and any(n > 1 and not step for n, step in zip(lengths, raw.order)):
            raise OpError(
                "this tensor cannot be written: its elements share memory (expand)",
                fix="write to a .clone()",
            )


def _made(op: Operator, args: tuple[Any, ...], shape: Any, dtype: DType) -> MetaArray:
    """A result of ``op``, with its strides and what it is a view of."""
    sizes = _lengths(shape)
    if not op.view or op.mutates:
        return _fresh(op.name, shape, dtype, args)
    viewed = args[op.schema.aliases[0].position]
    base = viewed.raw if isinstance(viewed, Value) else None
    if op.name not in _VIEWS or not isinstance(base, MetaArray):
        return MetaArray(shape, dtype, None, base if isinstance(base, MetaArray) else None, 2)
    strides = _VIEWS[op.name](base, sizes, *args[1:])
    if strides is not None:
        return MetaArray(shape, dtype, strides, base, base.doubt)
    if op.name == "getitem":  # by tensors: a copy however it lies
        return _fresh(op.name, shape, dtype, args)
    if base.doubt == 2 or base.doubt and op.view is True:  # a view, perhaps
        return MetaArray(shape, dtype, None, base, 2)
    if op.view is True:
        raise ShapeError(
            f"shape {tuple(shape)} cannot view memory of shape {base.shape} and strides "
            f"{base.strides}",
            fix="use reshape, which copies where it must, or .contiguous() first",
        )
    if op.name == "reshape" or op.name == "contiguous" and args[1] is None:
        return MetaArray(shape, dtype)
    return _fresh(op.name, shape, dtype, args)


def _written(op: Operator, args: tuple[Any, ...], result: Any) -> Any:
    """``result`` after the writes that the operator declares, aliasing what it declares."""
    for tensor in op.schema.written(args):
        bump_version(tensor)
    return link_results(op, args, result, _shares)


def _shares(result: Value, argument: Value) -> bool:
    own, other = result.raw, argument.raw
    return not isinstance(own, MetaArray) or not isinstance(other, MetaArray) or own.shares(other)


_LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}


def _lengths(shape: Sequence[Any]) -> tuple[int, ...]:
    """``shape`` with the examples of its symbols."""
    return tuple(n.example if isinstance(n, Symbol) else n for n in shape)


def _row_major(shape: tuple[int, ...], strides: _Strides) -> bool:
    """Whether elements lie in row-major order without gaps."""
    return 0 in shape or all(
        n == 1 or step == expected
        for n, step, expected in zip(shape, strides, contiguous_strides(shape))
    )


def _fresh(name: str, shape: Any, dtype: DType, args: tuple[Any, ...]) -> MetaArray:
    """A result in memory of its own: in the order of arguments of its shape, where they agree."""
    sizes = _lengths(shape)
    given = _arrays(args)
    usual = all(raw.doubt < 2 and _row_major(_lengths(raw.shape), raw.strides) for raw in given)
    format_of_copy = args[1] if name in ("clone", "contiguous") else None
    if format_of_copy is not None and not str(format_of_copy).endswith("preserve_format"):
        order = _LAST.get(str(format_of_copy).rpartition(".")[2])
        return MetaArray(shape, dtype, None if order is None else _dense(sizes, order))
    found = {
        None if raw.order is None or 0 in raw.order else _kept(sizes, raw.order)
        for raw in given
        if _lengths(raw.shape) == sizes
    }
    kept = found.pop() if len(found) == 1 else None
    return MetaArray(shape, dtype, kept, None, (1 if usual else 2) if given else 0)


def _arrays(value: Any) -> list[MetaArray]:
    """The arrays among arguments, in lists and tuples too."""
    if isinstance(value, (tuple, list)):
        return [raw for item in value for raw in _arrays(item)]
    raw = value.raw if isinstance(value, Value) else None
    return [raw] if isinstance(raw, MetaArray) else []


def _kept(shape: tuple[int, ...], strides: _Strides) -> _Strides | None:
    """Strides of a copy in the order of ``strides``; None where that is row-major."""
    order = tuple(sorted(range(len(shape)), key=lambda i: (-strides[i], i)))
    return None if order == tuple(range(len(shape))) else _dense(shape, order)


def _dense(shape: tuple[int, ...], order: tuple[int, ...]) -> _Strides:
    steps = contiguous_strides(tuple(shape[i] for i in order))
    return tuple(steps[order.index(dim)] for dim in range(len(shape)))


# -- views: the strides of a result over the same memory; None where it needs memory of its own ----


def _reshaped(old: tuple[int, ...], strides: _Strides, new: tuple[int, ...]) -> _Strides | None:
    if 0 in old:
        return contiguous_strides(new)
    # Runs of dimensions that lie as one dimension would, from the last: (length, step).
    runs: list[list[int]] = []
    for length, step in zip(reversed(old), reversed(strides)):
        if length == 1:
            continue
        if runs and step == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= length
        else:
            runs.append([length, step])
    found: list[int] = []
    pending = iter(runs)
    left, step = next(pending, (1, 1))
    for length in reversed(new):
        if length != 1 and left == 1:
            left, step = next(pending)
        if left % length:
            return None
        found.append(step)
        left, step = left // length, step * length
    return tuple(reversed(found))


def _view(raw: Any, shape: tuple[int, ...], *rest: Any) -> _Strides | None:
    return _reshaped(_lengths(raw.shape), raw.strides, shape)


def _permute(raw: Any, shape: tuple[int, ...], dims: Any) -> _Strides:
    return tuple(raw.strides[dim] for dim in dims)


def _expand(raw: Any, shape: tuple[int, ...], *rest: Any) -> _Strides:
    old = _lengths(raw.shape)
    added = len(shape) - len(old)
    kept = (step if n == m else 0 for n, m, step in zip(old, shape[added:], raw.strides))
    return (0,) * added + tuple(kept)


def _getitem(raw: Any, shape: tuple[int, ...], index: Any) -> _Strides | None:
    old, steps, found, dim = _lengths(raw.shape), raw.strides, [], 0
    taken = sum(item is not None and item is not Ellipsis for item in index)
    for item in index:
        if item is Ellipsis:
            found += steps[dim : dim + len(old) - taken]
            dim += len(old) - taken
        elif item is None:
            found.append(0)
        elif isinstance(item, slice):
            by = _lengths((1 if item.step is None else item.step,))[0]
            found.append(steps[dim] * by)
            dim += 1
        elif isinstance(item, (int, Symbol)) and not isinstance(item, bool):
            dim += 1
        else:
            return None
    found += steps[dim:]
    for place in reversed(range(len(found))):  # a new dimension steps over all of the next one
        if shape[place] == 1 and not found[place]:
            found[place] = shape[place + 1] * found[place + 1] if place + 1 < len(found) else 1
    return tuple(found)


def _contiguous(raw: Any, shape: tuple[int, ...], memory_format: Any) -> _Strides | None:
    name = str(memory_format).rpartition(".")[2]
    if name == "preserve_format":
        return raw.strides  # type: ignore[no-any-return]
    order = _LAST.get(name, range(len(shape)))
    lies = _row_major(tuple(shape[i] for i in order), tuple(raw.strides[i] for i in order))
    return raw.strides if lies else None


def _diagonal(raw: Any, shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> _Strides:
    steps, ndim = list(raw.strides), len(raw.shape)
    pair = {dim1 % ndim, dim2 % ndim}
    rest = (step for dim, step in enumerate(steps) if dim not in pair)
    return (*rest, sum(steps[dim] for dim in pair))


def _unfold(raw: Any, shape: tuple[int, ...], dim: int, size: int, step: Any) -> _Strides:
    steps = list(raw.strides) or [1]
    own = steps[dim]
    steps[dim] = own * _lengths((step,))[0]
    return (*steps[: len(shape) - 1], own)


def _view_as_complex(raw: Any, shape: tuple[int, ...]) -> _Strides | None:
    return tuple(step // 2 for step in raw.strides[:-1]) if raw.strides[-1] == 1 else None


def _view_dtype(raw: Any, shape: tuple[int, ...], dtype: Any) -> _Strides | None:
    had, has = raw.dtype.itemsize, dtype.itemsize
    if had == has or not shape:
        return raw.strides  # type: ignore[no-any-return]
    if raw.strides[-1] != 1:
        return None
    return (*(step * had // has for step in raw.strides[:-1]), 1)


#: operator -> (raw array, lengths of the result, the other arguments) -> strides of the view
_VIEWS: dict[str, Callable[..., _Strides | None]] = {
    "as_strided": lambda raw, shape, size, stride, offset: _lengths(stride),
    "contiguous": _contiguous,
    "diagonal": _diagonal,
    "detach": lambda raw, shape: raw.strides,
    "expand": _expand,
    "getitem": _getitem,
    "permute": _permute,
    "reshape": _view,
    "unfold": _unfold,
    "view": _view,
    "view_as_complex": _view_as_complex,
    "view_as_real": lambda raw, shape: (*(2 * step for step in raw.strides), 1),
    "view_dtype": _view_dtype,
}


class MetaBackend(Backend):
    """No data, no device: for shapes, dtypes and errors."""

    name: ClassVar[str] = "meta"
    array_type: ClassVar[type] = MetaArray
    views: ClassVar[bool] = True
    storage_dtypes = dtypes.EIGHT_BIT_FLOATS
    generic = staticmethod(_meta)

    def from_numpy(self, array: Any) -> MetaArray:
        """Keep shape and dtype, drop the data."""
        shape, order = tuple(array.shape), None
        if not array.flags.c_contiguous and all(
            step % array.itemsize == 0 for step in array.strides
        ):
            order = tuple(step // array.itemsize for step in array.strides)
        return MetaArray(shape, DType.of(array.dtype), order)

    def to_numpy(self, raw: Any) -> Any:
        """Always an error: there is no data."""
        raise DataDependentError(
            "a meta tensor has no data", fix="create it on a device that holds data"
        )

    def cast(self, raw: Any, dtype: DType) -> MetaArray:
        """The same shape in another dtype."""
        return MetaArray(raw.shape, dtype)

    def strides(self, raw: Any) -> _Strides | None:
        """In elements; None for row-major order, and where lengths are not known."""
        open_size = any(isinstance(n, Symbol) for n in raw.shape)
        return None if open_size else raw.order  # type: ignore[no-any-return]

    def copyto(self, dst: Any, src: Any) -> None:
        """Nothing to write, where it could be."""
        _check_writable(dst)

    def is_view(self, out: Any, source: Any) -> bool:
        """Whether both would lie in the same memory."""
        return bool(out.shares(source))


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the backend ``meta``."""
    registrar.backend(MetaBackend())
