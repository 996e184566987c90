"""Copies from strides to strides, to and from the host, and arrays made of one number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyopencl as cl

import coredispatch.plugin as cdp
from opencl_device.arrays import Array, empty, result, row_major, sliced
from opencl_device.device import DEVICE
from opencl_device.language import TRUE
from opencl_device.loop import launch


def written(out: Array, src: Array) -> Array:
    """``src``, broadcast and converted, in the elements of ``out``."""
    value = "x"
    if src.dtype.is_complex and not out.dtype.is_complex:
        value = TRUE if out.dtype.name == "bool" else "x.s0"
    elif out.dtype.is_complex and not src.dtype.is_complex:
        value = "(double2)(x, 0)"
    return launch(f"PUT0(0, {value})", [out, src], out.shape)


def clone(x: Array, memory_format: Any = None) -> Array:
    return written(empty(x.shape, x.dtype), x)


def to_dtype(x: Array, dtype: Any) -> Array:
    return written(empty(x.shape, dtype), x)


def sent(array: Any) -> Array:
    """A copy of a NumPy array on the device; does not wait for the copying."""
    array = np.array(array, order="C")
    out = empty(array.shape, cdp.DType.of(array.dtype))
    if array.size:
        data = array.reshape(-1).view(np.uint8)
        with DEVICE.lock:
            if len(DEVICE.sending) > 256:
                DEVICE.queue.finish()
                DEVICE.sending.clear()
            copying = cl.enqueue_copy(DEVICE.queue, out.memory.buffer, data, is_blocking=False)
            DEVICE.sending.append(copying)
    return out


def read(x: Array) -> Any:
    """The elements, as a NumPy array; the one place that waits."""
    x = x if x.strides == row_major(x.shape) else clone(x)
    out = np.empty(x.shape, cdp.numpy_dtype(x.dtype))
    DEVICE.finish()
    if out.size:
        target, start = out.reshape(-1).view(np.uint8), x.start * x.dtype.itemsize
        cl.enqueue_copy(DEVICE.queue, target, x.memory.buffer, src_offset=start)
    return out


def full(size: Any, value: Any, dtype: Any, device: Any = None) -> Array:
    dtype = dtype or cdp.result_dtype(cdp.operator("full"), (size, value, dtype, device))
    out = empty(cdp.operator("full").out_rule(size, value, dtype, device), dtype)
    value = value.item() if hasattr(value, "item") else value
    element = np.asarray(value).astype(cdp.numpy_dtype(dtype))
    if math.prod(out.shape):
        nbytes = math.prod(out.shape) * dtype.itemsize
        with DEVICE.lock:
            cl.enqueue_fill_buffer(DEVICE.queue, out.memory.buffer, element, 0, nbytes)
    return out


def fill_(x: Array, value: Any) -> None:
    """A write that elements which share memory allow: all get the same."""
    value = value if isinstance(value, Array) else full((), value, x.dtype)
    if value.ndim:
        raise cdp.ShapeError(f"fill takes a number or a 0-dim tensor, got shape {value.shape}")
    written(x, value)


def arange(start: Any, end: Any, step: Any, dtype: Any, device: Any) -> Array:
    args = (start, end, step, dtype, device)
    out = result("arange", args)
    start = 0 if end is None else start
    if all(isinstance(v, int) for v in (start, step)):
        numbers = [(v + (1 << 63)) % (1 << 64) - (1 << 63) for v in (start, step)]
    else:
        numbers = [float(start), float(step)]
    return launch("PUT0(0, e0 + p0 * e1)", [out], out.shape, numbers=numbers)


def cat(tensors: Any, dim: int) -> Array:
    out = result("cat", (tensors, dim))
    start = 0
    for x in tensors:
        if x.shape != (0,) or out.shape == (0,):
            lead = [slice(None)] * (dim % out.ndim)
            written(sliced(out, [*lead, slice(start, start + x.shape[dim])]), x)
            start += x.shape[dim]
    return out


def padded(x: Array, pad: Any, value: Any) -> Array:
    out = full(cdp.operator("constant_pad_nd").out_rule(x, pad, value), value, x.dtype)
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2]))[::-1]
    source = [slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pairs)]
    target = [slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(out.shape, pairs)]
    written(sliced(out, target), sliced(x, source))
    return out


def flipped(x: Array, dims: Any) -> Array:
    turned = [d % max(x.ndim, 1) for d in dims]
    return clone(sliced(x, [slice(None, None, -1 if d in turned else 1) for d in range(x.ndim)]))


def view_as_complex(x: Array) -> Array:
    if x.strides[-1] != 1 or x.start % 2 or any(s % 2 for s in x.strides[:-1]):
        x = clone(x)
    halved = [s // 2 for s in x.strides[:-1]]
    return Array(x.memory, x.shape[:-1], x.dtype.to_complex(), halved, x.start // 2)
