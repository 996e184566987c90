"""Views of the memory that an array lies in: in other strides, and as elements of another dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import (
    ArgumentError,
    DTypeError,
    ShapeError,
    check_reinterpreted,
    numpy_dtype,
)
from coredispatch_cuda_cupy.cuda.eight_bits import plain
from coredispatch_cuda_cupy.memory import Block

__all__ = ["kernels", "start_of", "storage_bytes"]

_WHOLE: dict[str, Any] = {"float32": np.dtype(np.complex64), "float64": np.dtype(np.complex128)}


def start_of(x: Any) -> int:
    """Bytes from the start of the storage to the first element of an array; 0 without elements."""
    return int(x.data.ptr - x.data.mem.ptr) if x.size else 0


def storage_bytes(x: Any) -> int:
    """The bytes that were asked for when the storage of an array was made."""
    owner = getattr(x.data.mem, "_owner", None)
    return int(owner.state[-1] if isinstance(owner, Block) else x.data.mem.size)


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels by operator, over this CuPy. Nothing is copied."""

    def as_strided(
        x: Any, size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None
    ) -> Any:
        item, there = x.dtype.itemsize, storage_bytes(x)
        offset = start_of(x) if storage_offset is None else storage_offset * item
        if len(size) != len(stride) or min((*size, *stride, offset), default=0) < 0:
            raise ValueError("as_strided")  # the rule of the operator says what is wrong
        last = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        if 0 in size:
            return cupy.empty(size, x.dtype)
        if offset + (last + 1) * item > there:
            raise ArgumentError(
                f"size {size} with stride {stride} from offset {offset // item} needs "
                f"{offset // item + last + 1} elements, the storage has {there // item}",
                fix="use smaller sizes, strides or offset",
            )
        start = cupy.cuda.MemoryPointer(x.data.mem, offset)
        steps = tuple(s * item for s in stride)
        return cupy.ndarray(size, plain(x).dtype, start, strides=steps).view(x.dtype)

    def view_dtype(x: Any, dtype: Any) -> Any:
        native = numpy_dtype(dtype)
        size, new = x.dtype.itemsize, native.itemsize
        if size != new and x.ndim and x.strides[-1] != size and x.size:
            raise ShapeError(
                f"the last dimension has steps of {x.strides[-1]} bytes and elements of {size}",
                fix="use .contiguous() first",
            )
        names = f"{x.dtype} as {native}"
        check_reinterpreted(x.shape, x.strides, start_of(x), size, new, names)
        return x.view(native)

    def view_as_complex(x: Any) -> Any:
        whole = _WHOLE.get(x.dtype.name)
        if whole is None:
            raise DTypeError(f"view_as_complex needs float32 or float64, got {x.dtype}")
        if x.ndim == 0 or x.shape[-1] != 2:
            raise ShapeError(f"the last dimension must have size 2, got {x.shape}")
        if not x.size:
            return cupy.empty(x.shape[:-1], whole)
        if x.strides[-1] != x.dtype.itemsize:
            raise ShapeError("the last dimension must be contiguous", fix="use .contiguous() first")
        names = f"{x.dtype} as {whole}"
        check_reinterpreted(
            x.shape, x.strides, start_of(x), x.dtype.itemsize, whole.itemsize, names
        )
        return x.view(whole)[..., 0]

    return {"as_strided": as_strided, "view_dtype": view_dtype, "view_as_complex": view_as_complex}
