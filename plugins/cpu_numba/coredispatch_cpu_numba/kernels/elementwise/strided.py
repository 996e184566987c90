"""Elementwise kernels of slices, permuted and expanded arrays, and of arrays that broadcast.

NumPy goes over them run by run, or element by element; see ``loops.elementwise.strided`` for what
is done here. Operands of one other order, and results, have it as NumPy would give it to them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf, prod
from typing import Any

import numpy as np

from coredispatch.plugin import call_raw
from coredispatch_cpu_numba.arrays import FLOATS, overlap
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.elementwise import pointwise

__all__ = ["ACCEPTS_ONE", "ACCEPTS_TWO", "KERNELS", "PLAIN", "PRIORITY", "WHEN"]

#: in the place of NumPy's kernels, below those of few elements
PRIORITY = 0
_LEAST = 1024
_SPLIT = 49152
_BLOCK = 4096  # bytes, as the loop has it
_MOST_DIMENSIONS = 8
#: the shortest rows that are gone through one by one
_ROW = 192
#: elements from which an operand of another order is brought into order by itself
_REORDERED = 8192
_blocks = Loop("elementwise.strided", "blocks", _SPLIT)
_BOOL = np.dtype(np.bool_)
_NONE = np.zeros(1)

Layout = tuple[tuple[int, ...], tuple[int, ...]]


def _descends(strides: list[int], shape: tuple[int, ...], order: Any) -> bool:
    """Whether an array lies in memory in this order of dimensions, repeated ones aside."""
    last = 0
    for d in reversed(order):
        if shape[d] != 1 and strides[d]:
            if strides[d] < last:
                return False
            last = strides[d]
    return True


def _order(shape: tuple[int, ...], steps: list[list[int]]) -> Any:
    """The dimensions of a result of NumPy's from the outermost on; None where it is hard to say."""
    identity = tuple(range(len(shape)))
    for strides in steps:
        full = all(step or n == 1 for step, n in zip(strides, shape, strict=True))
        if full and _descends(strides, shape, identity):
            return identity
    first = steps[0]
    order = tuple(sorted(identity, key=lambda d: (-first[d], d)))
    if all(_descends(strides, shape, identity) for strides in steps):
        return identity
    if 0 in first or not all(_descends(strides, shape, order) for strides in steps):
        return None
    return order


@lru_cache(maxsize=4096)
def _ordered(layouts: tuple[Layout, ...], out: Layout | None, shortest: int) -> Any:
    """The shape of the result, and the dimensions from the outermost on; None: not taken.

    ``shortest``: bytes of the rows from which it pays where elements of rows lie side by side; 0
    for any.
    """
    try:
        shape = np.broadcast_shapes(*[layout[0] for layout in layouts])
    except ValueError:
        return None
    if out is not None and out[0] != shape or 0 in shape or not shape:
        return None
    if any(step < 0 for _, strides in (*layouts, out or ((), ())) for step in strides):
        return None
    steps = [_spread(layout, shape) for layout in layouts]
    if out is not None:  # what is written need not be brought into order
        order = tuple(sorted(range(len(shape)), key=lambda d: (-out[1][d], d)))
        steps.append(list(out[1]))
    else:
        order = _order(shape, steps)
    if order is None:
        return None
    if shortest:  # of short rows NumPy's loops take as long
        made = tuple([shape[d] for d in order])
        lengths, columns = _merged(made, [[strides[d] for d in order] for strides in steps])
        size = min([x[-1] for x in columns if x[-1]], default=0)
        if max(x[-1] for x in columns) <= size and lengths[-1] * size < shortest:
            return None
    return shape, order


def _spread(layout: Layout, shape: tuple[int, ...]) -> list[int]:
    """How far apart elements are along each dimension of the result; 0 where they are repeated."""
    steps = [0 if n == 1 else step for n, step in zip(*layout, strict=True)]
    return [0] * (len(shape) - len(steps)) + steps


@lru_cache(maxsize=4096)
def _plan(
    layouts: tuple[Layout, ...],
    out: Layout | None,
    inplace: bool,
    size: int,
    width: int,
    numbers: int,
) -> Any:
    """``(blocks, steps within the innermost dimension, plan)`` of a call; None: not taken."""
    shape = np.broadcast_shapes(*[layout[0] for layout in layouts])
    given = [_spread(layout, shape) for layout in (*layouts, *([] if out is None else [out]))]
    if any(step % size for steps in given for step in steps):
        return None
    lengths, columns = _merged(shape, [[step // size for step in steps] for steps in given])
    if len(lengths) > _MOST_DIMENSIONS:
        return None
    whole = 0 if out is not None else 8
    for k, steps in enumerate(columns):
        if steps == _row_major(lengths):
            whole |= 8 if k == len(layouts) else 1 << k
    total, block, inner = prod(shape), _BLOCK // size, lengths[-1]
    by_rows = inner >= _ROW and all(steps[-1] in (0, 1) for steps in columns)
    row = inner if by_rows else 0
    blocks = total // row * -(-row // block) if row else -(-total // block)
    words = [total, len(lengths), len(layouts), numbers, width, whole, row, int(inplace), *lengths]
    for steps in columns:
        words += steps
    return blocks, [steps[-1] for steps in columns], np.array(words, np.int64)


def _merged(shape: tuple[int, ...], steps: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Neighbouring dimensions along which all arrays go on as they did, as one."""
    lengths: list[int] = []
    columns: list[list[int]] = [[] for _ in steps]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if lengths and all(c[-1] == s[d] * n for c, s in zip(columns, steps, strict=True)):
            lengths[-1] *= n
            for c, s in zip(columns, steps, strict=True):
                c[-1] = s[d]
        else:
            lengths.append(n)
            for c, s in zip(columns, steps, strict=True):
                c.append(s[d])
    if not lengths:
        return [1], [[1] for _ in steps]
    return lengths, columns


def _row_major(lengths: list[int]) -> list[int]:
    steps, step = [], 1
    for n in reversed(lengths):
        steps.append(step)
        step *= n
    return steps[::-1]


class _Function:
    """An elementwise function, by the names of its loops."""

    def __init__(self, name: str, module: str = "pointwise", operand: str = "") -> None:
        place = f"elementwise.{module}"
        self.is_cheap = name in _CHEAP or name.removesuffix("_scalar") in _CHEAP
        self.fresh = Loop(place, name, _SPLIT)
        self.inplace = Loop(place, f"{name}_inplace", _SPLIT)
        #: with a number in the place of the second array
        self.number = Loop(place, operand, _SPLIT) if operand else None
        self.number_inplace = Loop(place, f"{operand}_inplace", _SPLIT) if operand else None

    def __call__(
        self,
        arrays: tuple[np.ndarray, ...],
        numbers: tuple[float, ...],
        out: Any,
        result: Any = None,
    ) -> Any:
        """The function of arrays of any strides, and of numbers; ``result`` is another dtype."""
        own = arrays[0].dtype
        size = own.itemsize
        target = None
        if out is not None:
            if type(out) is not np.ndarray or out.dtype != own or not out.flags.writeable:
                return NotImplemented
            if any(x is not out and overlap(x, out) for x in arrays):
                return NotImplemented
            target = out.shape, out.strides
        shortest = _ROW * size if self.is_cheap else 0
        found = _ordered(tuple([(x.shape, x.strides) for x in arrays]), target, shortest)
        if found is None:
            return NotImplemented
        shape, order = found
        inplace = out is arrays[0]
        moved = order != _IDENTITY[len(order)]
        if moved:
            arrays = tuple(
                [
                    x.reshape((1,) * (len(shape) - x.ndim) + x.shape).transpose(order)
                    if x.ndim < len(shape)
                    else x.transpose(order)
                    for x in arrays
                ]
            )
            out = None if out is None else out.transpose(order)
        made = tuple([shape[d] for d in order]) if moved else shape
        given = [
            call_raw("contiguous", "cpu", x, None)
            if x.size >= _REORDERED and x.strides[-1] > size and not (inplace and k == 0)
            else x
            for k, x in enumerate(arrays)
        ]
        layouts = tuple([(x.shape, x.strides) for x in given])
        target = None if out is None else (out.shape, out.strides)
        planned = _plan(layouts, target, inplace, size, size if result is None else 1, len(numbers))
        if planned is None:
            return NotImplemented
        blocks, steps, plan = planned
        loop = self.inplace if inplace else self.fresh
        task = loop.compiled[own][1]
        other = 0
        if len(given) == 2 and steps[1] == 0 and self.number is not None and plan[_ROWS]:
            assert self.number_inplace is not None
            other = (self.number_inplace if inplace else self.number).compiled[own][1]
        written = np.empty(made, own if result is None else result) if out is None else out
        values = np.array(numbers) if numbers else _NONE
        rest = [given[0]] * (3 - len(given))
        total = written.size
        _blocks(
            own,
            total,
            blocks,
            *given,
            *rest,
            written,
            plan,
            values,
            task,
            other,
            weight=_BLOCK // size,
        )
        return written.transpose(np.argsort(order)) if moved else written


#: what NumPy has vectorized as well
_CHEAP = {"abs", "neg", "relu", "square", "sqrt", *pointwise.COMPARISON} | {
    name for name in pointwise.BINARY if not name.endswith("backward")
}
_IDENTITY = [tuple(range(n)) for n in range(65)]
_ROWS = 6


def _unary(name: str) -> Callable[..., Any]:
    function = _Function(name)

    def kernel(self: np.ndarray, out: Any = None) -> Any:
        found = function((self,), (), out)
        return found if out is None or found is NotImplemented else out

    kernel.__name__ = name
    return kernel


def _binary(name: str, result: Any = None) -> Callable[..., Any]:
    function = _Function(name, operand=f"{name}_scalar")
    with_number = _Function(f"{name}_scalar")

    def kernel(self: np.ndarray, other: Any, out: Any = None) -> Any:
        if type(other) is np.ndarray:
            found = function((self, other), (), out, result)
        else:
            found = with_number((self,), (float(other),), out, result)
        return found if out is None or found is NotImplemented else out

    kernel.__name__ = name
    return kernel


def _compared(name: str) -> Callable[..., Any]:
    binary = _binary(name, _BOOL)

    def kernel(self: np.ndarray, other: Any) -> Any:
        return binary(self, other)

    kernel.__name__ = name
    return kernel


def _with_numbers(name: str, arrays: int) -> Callable[..., Any]:
    """So many arrays, then numbers."""
    function = _Function(name, "parametrized")

    def kernel(*args: Any, out: Any = None) -> Any:
        found = function(args[:arrays], tuple([float(x) for x in args[arrays:]]), out)
        return found if out is None or found is NotImplemented else out

    kernel.__name__ = name
    return kernel


_gelu = {"none": _Function("gelu"), "tanh": _Function("gelu_tanh")}
_leaky_relu = _Function("leaky_relu_scalar")
_clamp = _Function("clamp", "parametrized")


def gelu(self: np.ndarray, approximate: str) -> Any:
    """``x P(N <= x)`` or its tanh form."""
    return _gelu[approximate]((self,), (), None)


def leaky_relu(self: np.ndarray, negative_slope: float, out: Any = None) -> Any:
    """``x`` where positive, else ``negative_slope * x``."""
    found = _leaky_relu((self,), (float(negative_slope),), out)
    return found if out is None or found is NotImplemented else out


def clamp(self: np.ndarray, low: Any, high: Any, out: Any = None) -> Any:
    """``self``, not below ``low`` and not above ``high``, where they are given."""
    bounds = -inf if low is None else float(low), inf if high is None else float(high)
    found = _clamp((self,), bounds, out)
    return found if out is None or found is NotImplemented else out


_EXACT = 2**53  # integers up to here are float64


def _is_number(x: Any) -> bool:
    if type(x) is float:
        return x == x
    return type(x) is int and -_EXACT <= x <= _EXACT


def _accepts(arrays: int, numbers: int = 0, either: bool = False) -> Callable[..., bool]:
    """So many arrays of one dtype that are not all alike, then so many numbers.

    ``either``: the last of the arrays may be a number.
    """

    def accepts(*args: Any) -> bool:
        first = args[0]
        if type(first) is not np.ndarray or first.dtype not in FLOATS:
            return False
        ordered, most = first.flags.c_contiguous, first.size
        for i in range(1, arrays):
            x = args[i]
            if type(x) is not np.ndarray:
                if not either or i != arrays - 1 or not _is_number(x):
                    return False
            elif x.dtype != first.dtype:
                return False
            else:
                ordered = ordered and x.shape == first.shape and x.flags.c_contiguous
                most = max(most, x.size)
        if ordered or most < _LEAST:
            return False
        for i in range(arrays, arrays + numbers):
            if not _is_number(args[i]):
                return False
        return True

    return accepts


def _accepts_clamp(self: Any, low: Any, high: Any, *_: Any) -> bool:
    given = [x for x in (low, high) if x is not None]
    return bool(given) and all(map(_is_number, given)) and ACCEPTS_ONE(self)


_FORWARD = [name for name in pointwise.BINARY if not name.endswith("backward")]
#: those that ``small_pointwise`` goes on to, whose place in the table is the same
PLAIN: dict[str, Callable[..., Any]] = {
    **{name: _unary(name) for name in pointwise.UNARY},
    **{name: _binary(name) for name in _FORWARD},
    **{name: _compared(name) for name in pointwise.COMPARISON},
}
ACCEPTS_ONE, ACCEPTS_TWO = _accepts(1), _accepts(2, either=True)
KERNELS: dict[str, Callable[..., Any]] = {
    "addcdiv": _with_numbers("addcdiv", 3),
    "addcmul": _with_numbers("addcmul", 3),
    "clamp": clamp,
    "gelu": gelu,
    "hardswish": _with_numbers("hardswish", 1),
    "leaky_relu": leaky_relu,
    "lerp": _with_numbers("lerp", 2),
}
WHEN: dict[str, Callable[..., bool]] = {
    "addcdiv": _accepts(3, 1),
    "addcmul": _accepts(3, 1),
    "clamp": _accepts_clamp,
    "gelu": ACCEPTS_ONE,
    "hardswish": ACCEPTS_ONE,
    "leaky_relu": _accepts(1, 1),
    "lerp": _accepts(2, 1),
}
