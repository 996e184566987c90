"""Arrays: handles of memory with a start and strides. Shapes are other strides over it."""

from __future__ import annotations

import math
from typing import Any

import coredispatch.plugin as cdp
from opencl_device.device import Memory
from opencl_device.language import STORED


class Array:
    """What the kernels take and return; strides and start count elements."""

    __slots__ = ("dtype", "memory", "ndim", "shape", "start", "strides")

    def __init__(self, memory: Any, shape: Any, dtype: Any, strides: Any, start: int = 0) -> None:
        self.memory, self.shape, self.dtype = memory, tuple(shape), dtype
        self.strides, self.start, self.ndim = tuple(strides), start, len(self.shape)

    def seen(self, shape: Any, strides: Any, start: int = 0) -> Array:
        """The same memory with other strides, from ``start`` on."""
        return Array(self.memory, shape, self.dtype, strides, self.start + start)

    def __int__(self) -> int:
        return int(element(self))

    def __bool__(self) -> bool:
        return bool(element(self))


def element(x: Array) -> Any:
    from opencl_device.copies import read  # which is made of kernels over arrays

    return read(x)


def row_major(shape: Any) -> tuple[int, ...]:
    return tuple(math.prod(max(n, 1) for n in shape[d + 1 :]) for d in range(len(shape)))


def empty(shape: Any, dtype: Any) -> Array:
    if dtype.name not in STORED:
        raise cdp.DTypeError(
            f"the OpenCL device has no {dtype.name}", fix=f"use one of {', '.join(sorted(STORED))}"
        )
    return Array(Memory(math.prod(shape) * dtype.itemsize), shape, dtype, row_major(shape))


def collapsed(sizes: Any, strides: Any) -> list[list[int]]:
    """Sizes with the stride of each operand; neighbours that lie as one dimension are one."""
    kept: list[list[int]] = []
    for n, *steps in zip(sizes, *strides):
        if n == 1:
            continue
        if kept and all(a == n * b for a, b in zip(kept[-1][1:], steps)):
            kept[-1] = [kept[-1][0] * n, *steps]
        else:
            kept.append([n, *steps])
    return kept


def broadcast(shape: Any, strides: Any, ndim: int) -> list[int]:
    """The strides of an array that broadcasts to ``ndim`` dimensions."""
    return [0] * (ndim - len(shape)) + [0 if n == 1 else s for n, s in zip(shape, strides)]


def expanded(x: Array, size: Any) -> Array:
    return x.seen(size, broadcast(x.shape, x.strides, len(size)))


def permuted(x: Array, dims: Any) -> Array:
    return x.seen([x.shape[d] for d in dims], [x.strides[d] for d in dims])


def diagonal(x: Array, offset: int, dim1: int, dim2: int) -> Array:
    shape = cdp.operator("diagonal").out_rule(x, offset, dim1, dim2)
    (n, across), (m, along) = ((x.shape[d], x.strides[d]) for d in (dim1, dim2))
    steps = [s for d, s in enumerate(x.strides) if d not in (dim1 % x.ndim, dim2 % x.ndim)]
    start = min(max(-offset, 0), n) * across + min(max(offset, 0), m) * along
    return x.seen(shape, [*steps, across + along], start if shape[-1] else 0)


def unfolded(x: Array, dimension: int, size: int, step: int) -> Array:
    shape = cdp.operator("unfold").out_rule(x, dimension, size, step)
    if not x.ndim:
        return x.seen(shape, [1])
    strides = list(x.strides)
    strides[dimension] *= step
    return x.seen(shape, [*strides, x.strides[dimension]])


def strided(x: Array, size: Any, stride: Any, storage_offset: int | None) -> Array:
    shape = cdp.operator("as_strided").out_rule(x, size, stride, storage_offset)
    start = x.start if storage_offset is None else storage_offset
    needed = start + sum((n - 1) * s for n, s in zip(shape, stride)) + 1
    held = x.memory.nbytes // x.dtype.itemsize
    if 0 not in shape and needed > held:
        raise cdp.ArgumentError(
            f"size {shape} with stride {tuple(stride)} from offset {start} needs {needed} "
            f"elements, the storage has {held}",
            fix="use smaller sizes, strides or offset",
        )
    return Array(x.memory, shape, x.dtype, stride, start)


def viewed(x: Array, shape: Any) -> Array:
    shape = cdp.operator("view").out_rule(x, shape)
    if 0 in shape:
        return x.seen(shape, row_major(shape))
    parts = collapsed(x.shape, [x.strides])[::-1]
    strides, (n, step) = [], parts.pop(0) if parts else (1, 1)
    for size in reversed(shape):
        if n == 1 and size > 1 and parts:
            n, step = parts.pop(0)
        if n % size:
            raise cdp.ShapeError(
                f"shape {shape} cannot view memory of shape {x.shape} and strides {x.strides}",
                fix="use reshape, which copies where it must",
            )
        strides.append(step)
        n, step = n // size, step * size
    return x.seen(shape, strides[::-1])


def sliced(x: Array, basic: Any) -> Array:
    """``x`` at integers, slices and None."""
    shape, strides, start, d = [], [], 0, 0
    for item in basic:
        if item is None:
            shape.append(1), strides.append(0)
            continue
        if isinstance(item, int):
            start += (item + x.shape[d] if item < 0 else item) * x.strides[d]
        else:
            places = range(x.shape[d])[item]
            shape.append(len(places)), strides.append(x.strides[d] * places.step)
            start += places.start * x.strides[d] if len(places) else 0
        d += 1
    return x.seen([*shape, *x.shape[d:]], [*strides, *x.strides[d:]], start)


def reinterpreted(x: Array, dtype: Any) -> Array:
    shape = cdp.operator("view_dtype").out_rule(x, dtype)
    old, new = x.dtype.itemsize, dtype.itemsize
    steps = [s * old // new for s in x.strides[:-1]] + [1] if old != new else x.strides
    return Array(x.memory, shape, dtype, steps, x.start * old // new)


def view_as_real(x: Array) -> Array:
    strides = (*(2 * s for s in x.strides), 1)
    return Array(x.memory, (*x.shape, 2), x.dtype.to_real(), strides, 2 * x.start)


def outlined(op: str, args: Any) -> Any:
    """What the rules of a call go by, where that is arrays and numbers; else None."""
    outline: list[Any] = [op, cdp.default_dtype()]
    for a in args:
        if isinstance(a, Array):
            outline.append((a.shape, a.dtype))
        elif type(a) in (bool, int, float):
            outline.append((type(a), a))
        else:
            return None
    return tuple(outline)


def remembered(known: dict[Any, Any], op: str, args: Any, rule: Any) -> Any:
    """``rule(op, args)``, asked once for calls of arrays and numbers that are alike."""
    outline = outlined(op, args)
    if outline is None:
        return rule(op, args)
    if outline not in known:
        if len(known) > 4096:
            known.clear()
        known[outline] = rule(op, args)
    return known[outline]


TAKEN: dict[Any, Any] = {}
RESULTS: dict[Any, Any] = {}


def taken(op: str, args: Any) -> None:
    """Refuse what the operator does not take."""
    remembered(TAKEN, op, args, cdp.check)


def result(op: str, args: Any) -> Array:
    """Where the result of a call goes, by the rules of the operator."""
    return empty(*remembered(RESULTS, op, args, ruled))


def ruled(op: str, args: Any) -> Any:
    operator = cdp.operator(op)
    return operator.out_rule(*args), cdp.result_dtype(operator, args)
