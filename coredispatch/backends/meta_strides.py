"""How the results of operators would lie in memory: strides without data.

A meta tensor has the strides that a dense tensor on the CPU has, so that a program finds out what
a reshape copies, and a graph without data knows which results are views. Lengths that are symbols
count as their examples, and are not asked: nothing is guarded by how memory lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coredispatch.plugin import Symbol, contiguous_strides

__all__ = ["VIEWS", "Strides", "fresh", "lengths", "row_major"]

#: steps between neighbours along each dimension, in elements
Strides = tuple[int, ...]

_LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}


def lengths(shape: Sequence[Any]) -> tuple[int, ...]:
    """``shape`` with the examples of its symbols."""
    return tuple(n.example if isinstance(n, Symbol) else n for n in shape)


def row_major(shape: tuple[int, ...], strides: Strides) -> bool:
    """Whether elements lie in row-major order without gaps."""
    return 0 in shape or all(
        n == 1 or step == expected
        for n, step, expected in zip(shape, strides, contiguous_strides(shape))
    )


def fresh(name: str, shape: tuple[int, ...], args: tuple[Any, ...]) -> Strides | None:
    """The strides of a result in memory of its own; None for row-major order.

    A result of the shape of its arguments keeps their order, where they agree on a dense one.
    """
    format_of_copy = args[1] if name in ("clone", "contiguous") else None
    if name == "contiguous" and format_of_copy is None:
        return None
    if format_of_copy is not None and not str(format_of_copy).endswith("preserve_format"):
        order = _LAST.get(str(format_of_copy).rpartition(".")[2])
        return None if order is None else _dense(shape, order)
    found: set[Strides | None] = set()
    for argument in args:
        raw = getattr(argument, "raw", None)
        if raw is None or lengths(raw.shape) != shape:
            continue
        found.add(raw.strides if raw.strides is None else _kept(shape, raw.strides))
    return found.pop() if len(found) == 1 else None


def _kept(shape: tuple[int, ...], strides: Strides) -> Strides | None:
    """Strides of a copy in the order of ``strides``; None where that is row-major."""
    order = tuple(sorted(range(len(shape)), key=lambda i: (-strides[i], i)))
    return None if order == tuple(range(len(shape))) else _dense(shape, order)


def _dense(shape: tuple[int, ...], order: tuple[int, ...]) -> Strides:
    steps = contiguous_strides(tuple(shape[i] for i in order))
    return tuple(steps[order.index(dim)] for dim in range(len(shape)))


# -- views: the strides of a result over the same memory; None where it needs memory of its own ----


def _reshaped(old: tuple[int, ...], strides: Strides, new: tuple[int, ...]) -> Strides | None:
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


def _view(raw: Any, shape: tuple[int, ...], *rest: Any) -> Strides | None:
    return _reshaped(lengths(raw.shape), raw.steps, shape)


def _permute(raw: Any, shape: tuple[int, ...], dims: Any) -> Strides:
    return tuple(raw.steps[dim] for dim in dims)


def _expand(raw: Any, shape: tuple[int, ...], *rest: Any) -> Strides:
    old = lengths(raw.shape)
    added = len(shape) - len(old)
    kept = (step if n == m else 0 for n, m, step in zip(old, shape[added:], raw.steps))
    return (0,) * added + tuple(kept)


def _getitem(raw: Any, shape: tuple[int, ...], index: Any) -> Strides | None:
    old, steps, found, dim = lengths(raw.shape), raw.steps, [], 0
    taken = sum(item is not None and item is not Ellipsis for item in index)
    for item in index:
        if item is Ellipsis:
            found += steps[dim : dim + len(old) - taken]
            dim += len(old) - taken
        elif item is None:
            found.append(0)
        elif isinstance(item, slice):
            by = lengths((1 if item.step is None else item.step,))[0]
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


def _contiguous(raw: Any, shape: tuple[int, ...], memory_format: Any) -> Strides | None:
    name = str(memory_format).rpartition(".")[2]
    if name == "preserve_format":
        return raw.steps  # type: ignore[no-any-return]
    order = _LAST.get(name, range(len(shape)))
    lies = row_major(tuple(shape[i] for i in order), tuple(raw.steps[i] for i in order))
    return raw.steps if lies else None


def _diagonal(raw: Any, shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> Strides:
    steps, ndim = list(raw.steps), len(raw.shape)
    pair = {dim1 % ndim, dim2 % ndim}
    rest = (step for dim, step in enumerate(steps) if dim not in pair)
    return (*rest, sum(steps[dim] for dim in pair))


def _unfold(raw: Any, shape: tuple[int, ...], dim: int, size: int, step: Any) -> Strides:
    steps = list(raw.steps) or [1]
    own = steps[dim]
    steps[dim] = own * lengths((step,))[0]
    return (*steps[: len(shape) - 1], own)


def _view_as_complex(raw: Any, shape: tuple[int, ...]) -> Strides | None:
    return tuple(step // 2 for step in raw.steps[:-1]) if raw.steps[-1] == 1 else None


def _view_dtype(raw: Any, shape: tuple[int, ...], dtype: Any) -> Strides | None:
    had, has = raw.dtype.itemsize, dtype.itemsize
    if had == has or not shape:
        return raw.steps  # type: ignore[no-any-return]
    if raw.steps[-1] != 1:
        return None
    return (*(step * had // has for step in raw.steps[:-1]), 1)


#: operator -> (raw array, lengths of the result, the other arguments) -> strides of the view
VIEWS: dict[str, Callable[..., Strides | None]] = {
    "as_strided": lambda raw, shape, size, stride, offset: lengths(stride),
    "contiguous": _contiguous,
    "diagonal": _diagonal,
    "detach": lambda raw, shape: raw.steps,
    "expand": _expand,
    "getitem": _getitem,
    "permute": _permute,
    "reshape": _view,
    "unfold": _unfold,
    "view": _view,
    "view_as_complex": _view_as_complex,
    "view_as_real": lambda raw, shape: (*(2 * step for step in raw.steps), 1),
    "view_dtype": _view_dtype,
}
