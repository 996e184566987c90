"""NumPy kernels whose results share memory with their input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import ArgumentError, DimError, ShapeError
from coredispatch.registry.model.sizes import (
    as_int,
    check_reinterpreted,
    expand_size,
    infer_size,
    normalize_dim,
)

__all__ = ["KERNELS", "owner_of", "unsqueeze"]

_ALL = slice(None)


def view(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``x`` in another shape over the same memory; refuses where that needs a copy."""
    out = x.reshape(shape)
    for length in shape:
        if length < -1:  # NumPy reads every negative length as -1
            infer_size(shape, x.size)
    # Measured: asking afterwards costs 0.04 us, reshape(copy=False) 0.2 us.
    owner = out.base
    if owner is not x and (owner is None or owner is not x.base):
        raise ShapeError(
            f"shape {shape} cannot view memory of shape {x.shape} and strides {x.strides}",
            fix="use reshape, which copies where it must",
        )
    return out


def view_dtype(x: np.ndarray, dtype: DType) -> np.ndarray:
    """The memory of ``x`` read as elements of another dtype."""
    native = numpy_dtype(dtype)
    if native.itemsize != x.itemsize and x.ndim and x.strides[-1] != x.itemsize:
        raise ShapeError(
            f"the last dimension has steps of {x.strides[-1]} bytes and elements of {x.itemsize}",
            fix="use .contiguous() first",
        )
    if native.itemsize > x.itemsize:
        names = f"{x.dtype} as {native}"
        offset = owner_of(x)[1]
        check_reinterpreted(x.shape, x.strides, offset, x.itemsize, native.itemsize, names)
    return x.view(native)


def reshape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``x`` in another shape, a view where the strides allow one."""
    out = x.reshape(shape)
    if out.shape != shape and min(shape) < -1:  # NumPy reads every negative length as -1
        infer_size(shape, x.size)
    return out


def permute(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """``x`` with its dimensions in the order ``dims``."""
    return x.transpose(dims)


def transpose(x: np.ndarray, dim0: int, dim1: int) -> np.ndarray:
    """``x`` with two dimensions swapped."""
    return x.swapaxes(dim0, dim1) if x.ndim else _scalar_view(x, dim0, dim1)


def _scalar_view(x: np.ndarray, *dims: int) -> np.ndarray:
    for dim in dims:
        normalize_dim(dim, 0)
    return x[...]


def t(x: np.ndarray) -> np.ndarray:
    """Transpose of a matrix; vectors and scalars as they are."""
    if x.ndim > 2:
        raise ShapeError(f"t takes at most 2 dimensions, got {x.ndim}", fix="use x.mT")
    return x.T


def expand(x: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Stride-0 view in the larger shape ``size``, read-only as its elements share memory."""
    shape, strides = x.shape, x.strides
    if not shape and size and min(size) >= 0:  # the gradient of a total: no loop needed
        out = np.ndarray(size, x.dtype, x, 0, (0,) * len(size))
        out.flags.writeable = 0 in size and x.flags.writeable
        return out
    lead = len(size) - len(shape)
    if lead < 0:
        expand_size(shape, size)
    shared = False
    for wanted in size[:lead]:
        if wanted != 1:
            shared = True
            if wanted < 0:
                expand_size(shape, size)
    if size[lead:] == shape:  # no loop needed
        new_shape, new_strides = size, (0,) * lead + strides
    else:
        own = list(strides)
        for i, have in enumerate(shape):
            wanted = size[lead + i]
            if wanted != have and wanted != -1:
                if have != 1 or wanted < 0:
                    expand_size(shape, size)
                own[i], shared = 0, True
        new_shape = expand_size(shape, size)
        new_strides = (0,) * lead + tuple(own)
    if not shared:
        return x.reshape(new_shape)
    if 0 in new_shape:
        return np.empty(new_shape, x.dtype)  # it has no elements to share
    if x.flags.c_contiguous:
        # Measured: 0.3 us against 2.4 us of np.broadcast_to.
        out = np.ndarray(new_shape, x.dtype, x, 0, new_strides)
        out.flags.writeable = False
        return out
    return np.broadcast_to(x, new_shape)


def squeeze(x: np.ndarray, dim: tuple[int, ...] | None) -> np.ndarray:
    """``x`` without its size-1 dimensions, or without those of ``dim`` that have size 1."""
    if dim is None:
        return x.squeeze()
    ndim = x.ndim
    if len(dim) > 1 and len({d % (ndim or 1) for d in dim}) < len(dim):
        raise DimError(f"dim {dim} names a dimension twice", fix="name each dimension once")
    if ndim == 0:
        return _scalar_view(x, *dim)
    ones = []
    for d in dim:
        if not -ndim <= d < ndim:
            normalize_dim(d, ndim)
        if x.shape[d] == 1:
            ones.append(d)
    return x.squeeze(tuple(ones)) if ones else x[...]


def unsqueeze(x: np.ndarray, dim: int) -> np.ndarray:
    """``x`` with a new dimension of size 1 at ``dim``."""
    if dim == 0:
        return x[None]
    ndim = x.ndim
    if dim < 0:
        dim += ndim + 1
    if not 0 <= dim <= ndim:
        normalize_dim(dim - ndim - 1 if dim < 0 else dim, ndim + 1)
    return x[(_ALL,) * dim + (None,)]


def flatten(x: np.ndarray, start_dim: int, end_dim: int) -> np.ndarray:
    """``x`` with the dimensions from ``start_dim`` to ``end_dim`` (inclusive) as one."""
    shape = x.shape
    ndim = len(shape)
    if ndim == 0:
        _scalar_view(x, start_dim, end_dim)
        return x.reshape(1)
    first = start_dim + ndim if start_dim < 0 else start_dim
    last = end_dim + ndim if end_dim < 0 else end_dim
    if not 0 <= first <= last < ndim:
        normalize_dim(start_dim, ndim), normalize_dim(end_dim, ndim)
        raise DimError(
            f"start_dim {start_dim} comes after end_dim {end_dim}", fix="swap start_dim and end_dim"
        )
    length = 1
    for n in shape[first : last + 1]:
        length *= n
    return x.reshape((*shape[:first], length, *shape[last + 1 :]))


def diagonal(x: np.ndarray, offset: int, dim1: int, dim2: int) -> np.ndarray:
    """Diagonal of the planes (dim1, dim2), as the last dimension of a view."""
    # NumPy takes no offset beyond a C int; all that lie outside the planes are alike
    offset = max(-x.shape[dim1], min(offset, x.shape[dim2]))
    out = x.diagonal(offset, dim1, dim2)
    if x.flags.writeable:
        out.flags.writeable = True  # NumPy hands it out read-only
    return out


def as_strided(
    x: np.ndarray, size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None
) -> np.ndarray:
    """View of the memory ``x`` lies in, with any size, strides and offset (in elements)."""
    root, offset = owner_of(x)
    item = x.itemsize
    if storage_offset is not None:
        offset = storage_offset * item
    if len(size) != len(stride) or min((*size, *stride, offset), default=0) < 0:
        raise ValueError("as_strided")  # the rule of the operator says what is wrong
    last = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if 0 not in size and offset + (last + 1) * item > root.nbytes:
        raise ArgumentError(
            f"size {size} with stride {stride} from offset {offset // item} needs "
            f"{offset // item + last + 1} elements, the storage has {root.nbytes // item}"
        )
    if not (root.flags.c_contiguous or root.flags.f_contiguous):
        raise ArgumentError("the memory below this tensor is not one contiguous block")
    return _laid(x, root, size, tuple(s * item for s in stride), offset if 0 not in size else 0)


def owner_of(x: np.ndarray) -> tuple[np.ndarray, int]:
    """The array whose memory ``x`` is a view of, and where in it ``x`` begins, in bytes."""
    root = x
    while isinstance(root.base, np.ndarray):
        root = root.base
    return root, x.__array_interface__["data"][0] - root.__array_interface__["data"][0]


def _laid(
    x: np.ndarray, root: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> np.ndarray:
    """A view of contiguous ``root``. NumPy's ``as_strided`` hides whose memory it is."""
    memory = root.reshape(-1, order="A").view(np.uint8)
    return np.ndarray(shape, x.dtype, memory, offset, strides)  # checks the bounds


def unfold(x: np.ndarray, dimension: int, size: int, step: int) -> np.ndarray:
    """All windows of ``size`` along a dimension, ``step`` apart, as a new last dimension."""
    if x.ndim == 0:
        normalize_dim(dimension, 0)
        return unfold(x.reshape(1), 0, size, step)[0]
    length, stride = x.shape[dimension], x.strides[dimension]
    if not 0 <= size <= length or step <= 0:
        raise ArgumentError(
            f"windows of size {size} and step {step} do not fit dimension {dimension} of length "
            f"{length}",
            fix="use 0 <= size <= length and step > 0",
        )
    shape, strides = list(x.shape), list(x.strides)
    shape[dimension], strides[dimension] = (length - size) // step + 1, stride * step
    root, offset = owner_of(x)
    if not (root.flags.c_contiguous or root.flags.f_contiguous) or x.size == 0:
        return np.lib.stride_tricks.as_strided(x, (*shape, size), (*strides, stride))
    return _laid(x, root, (*shape, size), (*strides, stride), offset)


def split(x: np.ndarray, size: Any, dim: int) -> list[np.ndarray]:
    """Views of ``x`` cut along ``dim`` into pieces of a size or of the sizes given."""
    length = x.shape[dim]
    if not isinstance(size, (list, tuple)):
        size = as_int(size)
        if size < 0 or (size == 0 and length):
            raise ArgumentError(
                f"a split size must be positive, got {size}", fix="use a positive size"
            )
        if size == 0 or length == 0:
            return [x[:]]
        if dim == 0:
            return [x[start : start + size] for start in range(0, length, size)]
        sizes = [size] * (length // size)
        if length % size:
            sizes.append(length % size)
    else:
        sizes = [as_int(n) for n in size]
        if sum(sizes) != length or min(sizes, default=0) < 0:
            raise ArgumentError(f"split sizes {sizes} do not add up to {length}, the size of {dim}")
    lead = (_ALL,) * (dim if dim >= 0 else dim + x.ndim)
    pieces, start = [], 0
    for n in sizes:
        pieces.append(x[(*lead, slice(start, start + n))])
        start += n
    return pieces


def chunk(x: np.ndarray, chunks: int, dim: int) -> list[np.ndarray]:
    """Views of ``x`` cut into at most ``chunks`` pieces of equal size (the last may be less)."""
    if chunks <= 0:
        raise ArgumentError(f"chunks must be positive, got {chunks}")
    length = x.shape[dim]
    if length == 0:
        return split(x, (0,) * chunks, dim)
    return split(x, -(-length // chunks), dim)


def unbind(x: np.ndarray, dim: int) -> list[np.ndarray]:
    """The slices of ``x`` along ``dim``, as views."""
    if x.ndim == 0:
        raise DimError("a 0-dim tensor has no dimension to unbind", fix="reshape it to (1,) first")
    moved = x if dim == 0 else x.swapaxes(0, dim) if x.ndim <= 2 else np.moveaxis(x, dim, 0)
    return [moved[i, ...] for i in range(moved.shape[0])]


KERNELS: dict[str, Callable[..., Any]] = {
    "view": view,
    "view_dtype": view_dtype,
    "reshape": reshape,
    "permute": permute,
    "transpose": transpose,
    "t": t,
    "expand": expand,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
    "flatten": flatten,
    "diagonal": diagonal,
    "as_strided": as_strided,
    "unfold": unfold,
    "split": split,
    "chunk": chunk,
    "unbind": unbind,
    "detach": lambda x: x,
}
