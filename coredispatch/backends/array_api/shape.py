"""Array-API kernels that look at memory in another way, join it, rearrange it or copy it.

Where the namespace's arrays have strided views (NumPy, CuPy) the view kernels return views;
elsewhere they copy, which such a backend declares with ``views = False``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from coredispatch.backends.array_api.namespace import Namespace
from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import ArgumentError, ShapeError
from coredispatch.registry.model.sizes import expand_size, infer_size, normalize_dim, normalize_dims

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    xp = Namespace.of(xp)
    strided = xp.strided

    def view(x: Any, shape: tuple[int, ...]) -> Any:
        out = xp.reshape(x, _sizes(x, shape))
        if strided and out.base is not x and (out.base is None or out.base is not x.base):
            raise ShapeError(
                f"shape {shape} cannot view memory of shape {x.shape} and strides {x.strides}",
                fix="use reshape, which copies where it must",
            )
        return out

    def reshape(x: Any, shape: tuple[int, ...]) -> Any:
        return xp.reshape(x, _sizes(x, shape))

    def permute(x: Any, dims: tuple[int, ...]) -> Any:
        # The standard counts dimensions from the first only.
        return xp.permute_dims(x, tuple(d % x.ndim for d in dims) if x.ndim else dims)

    def expand(x: Any, size: tuple[int, ...]) -> Any:
        return xp.broadcast_to(x, expand_size(x.shape, size))

    def squeeze(x: Any, dim: tuple[int, ...] | None) -> Any:
        if dim == ():
            return x  # none of them, where other operators take all
        dims = normalize_dims(dim, x.ndim)
        ones = tuple(d % x.ndim for d in dims if x.ndim and x.shape[d] == 1)
        return xp.squeeze(x, axis=ones) if ones else x

    def cat(tensors: list[Any], dim: int) -> Any:
        filled = [x for x in tensors if tuple(x.shape) != (0,)] or tensors[:1]
        return xp.concat(filled, axis=dim)

    def flip(x: Any, dims: tuple[int, ...]) -> Any:
        if dims and not x.ndim:  # a number counts as one dimension
            return xp.copy(xp.reshape(xp.flip(xp.reshape(x, (1,)), axis=dims), ()))
        return xp.copy(xp.flip(x, axis=dims) if dims else x)

    def constant_pad(x: Any, pad: tuple[int, ...], value: Any) -> Any:
        if len(pad) % 2 or len(pad) > 2 * x.ndim:
            raise ShapeError(
                f"pad {pad} does not fit {x.ndim} dimensions",
                fix="give a pair of numbers for each padded dimension, the last dimension first",
            )
        for n, before, after in zip(reversed(x.shape), pad[::2], pad[1::2]):
            if n + min(before, 0) + min(after, 0) < 0:
                raise ShapeError(
                    f"padding ({before}, {after}) crops more than the {n} elements of a dimension "
                    f"of shape {tuple(x.shape)}",
                    fix="crop by no more than a length",
                )
        for i in range(len(pad) // 2):
            axis = x.ndim - 1 - i
            before, after = pad[2 * i], pad[2 * i + 1]
            lead = (slice(None),) * axis
            cut = slice(max(-before, 0), x.shape[axis] - max(-after, 0))
            x = x[(*lead, cut, ...)]
            borders = [
                xp.full((*x.shape[:axis], max(n, 0), *x.shape[axis + 1 :]), value, dtype=x.dtype)
                for n in (before, after)
            ]
            x = xp.concat([borders[0], x, borders[1]], axis=axis)
        return xp.copy(x)

    def clone(x: Any, memory_format: Any) -> Any:
        axes = {"channels_last": 4, "channels_last_3d": 5}
        ndim = axes.get(str(memory_format).rpartition(".")[2])
        if ndim is None or not strided:
            return xp.copy(x)
        if x.ndim != ndim:
            raise ShapeError(f"{memory_format} needs {ndim} dimensions, got {x.ndim}")
        return xp.moveaxis(xp.copy(xp.moveaxis(x, 1, -1)), -1, 1)

    def to_dtype(x: Any, dtype: DType) -> Any:
        if DType.of(x.dtype).is_complex and not dtype.is_complex:
            x = xp.real(x) if dtype.name != "bool" else x != 0
        if not strided and dtype.name in _HALVES:
            found = DType.of(x.dtype).name
            # float32 would round them a first time
            if found in ("int32", "uint32", "int64", "uint64"):
                x, found = _as_doubles(xp, x, found), "float64"
            if found == "float64":
                x = _rounded(xp, x, *_HALVES[dtype.name])
        return xp.astype(x, xp.native(dtype))

    table: dict[str, Callable[..., Any]] = {
        "view": view,
        "reshape": reshape,
        "permute": permute,
        "expand": expand,
        "squeeze": squeeze,
        "cat": cat,
        "flip": flip,
        "constant_pad_nd": constant_pad,
        "clone": clone,
        "to_dtype": to_dtype,
        "detach": lambda x: x,
        "unsqueeze": lambda x, dim: xp.expand_dims(x, axis=dim),
        "tril": lambda x, diagonal: xp.tril(_matrices(x), k=diagonal),
        "triu": lambda x, diagonal: xp.triu(_matrices(x), k=diagonal),
    }
    if hasattr(xp.zeros(1), "view"):  # no function of the standard, but of most libraries
        table["view_dtype"] = lambda x, dtype: x.view(xp.native(dtype))
    else:
        table["view_dtype"] = _reinterpreting(xp)
    if strided:
        table |= _strided_views(xp)
    return table


#: digits of half precision, and the exponents of its least number and of its least normal one
_HALVES = {"float16": (11, -24, -14), "bfloat16": (8, -133, -126)}


def _rounded(xp: Any, x: Any, digits: int, least: int, normal: int) -> Any:
    """Doubles as numbers of half precision, rounded once: some libraries go by way of float32.

    By Veltkamp's splitting ("A floating-point technique for extending the available precision",
    Dekker, 1971), and below the normal numbers by adding one whose last digit is the least. Both
    leave the sides of a tie open, but what float32 holds, as it does all ties, is not rounded here.
    """
    size = xp.abs(x)
    large = x * (2.0 ** (53 - digits) + 1)
    split = large - (large - x)
    step = 1.5 * 2.0 ** (52 + least)
    small = (x + step) - step
    small = xp.where(small == 0, x * 0, small)  # with its sign
    out = xp.where(size < 2.0**normal, small, split)
    exact = xp.astype(xp.astype(x, xp.float32), xp.float64) == x
    return xp.where(exact | ~(size < 1e39), x, out)


def _as_doubles(xp: Any, x: Any, dtype: str) -> Any:
    """Integers as doubles that round to half precision as they do themselves.

    What a double cannot hold is made odd at its sixteenth bit (Boldo and Melquiond, "When double
    rounding is odd", 2005).
    """
    if dtype in ("int64", "uint64"):
        rest = xp.astype((x & 0xFFFF) != 0, x.dtype)
        large = x >> 31 != 0
        if dtype == "int64":
            large = large & (x >> 31 != -1)
        x = xp.where(large, ((x >> 16) | rest) << 16, x)
    return xp.astype(x, xp.float64)


def _reinterpreting(xp: Any) -> Callable[..., Any]:
    """``view_dtype`` by way of NumPy: the standard has no word for the bytes of an array."""

    def view_dtype(x: Any, dtype: DType) -> Any:
        import numpy

        native = xp.native(dtype)  # refused before anything moves
        bits = numpy.ascontiguousarray(numpy.asarray(x)).reshape(x.shape)
        return xp.asarray(bits.view(numpy_dtype(dtype)), dtype=native, copy=True)

    return view_dtype


def _strided_views(xp: Any) -> dict[str, Callable[..., Any]]:
    """Kernels that need strides: NumPy's and CuPy's ``as_strided``."""
    as_strided = xp.lib.stride_tricks.as_strided

    def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
        if x.ndim == 0:
            normalize_dim(dimension, 0)
            return unfold(xp.reshape(x, (1,)), 0, size, step)[0]
        length = x.shape[normalize_dim(dimension, x.ndim)]
        if not 0 <= size <= length or step <= 0:
            raise ArgumentError(
                f"windows of size {size} and step {step} do not fit dimension {dimension} of "
                f"length {length}",
                fix="use 0 <= size <= length and step > 0",
            )
        shape, strides = list(x.shape), list(x.strides)
        shape[dimension] = (shape[dimension] - size) // step + 1
        strides[dimension] *= step
        return as_strided(x, (*shape, size), (*strides, x.strides[dimension]))

    def diagonal(x: Any, offset: int, dim1: int, dim2: int) -> Any:
        return x.diagonal(max(-x.shape[dim1], min(offset, x.shape[dim2])), dim1, dim2)

    return {"unfold": unfold, "diagonal": diagonal}


def _sizes(x: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with -1 worked out, which the standard leaves open for arrays of size 0."""
    return infer_size(shape, prod(x.shape)) if min(shape, default=0) < 0 else shape


def _matrices(x: Any) -> Any:
    if x.ndim < 2:
        raise ShapeError(
            f"a matrix or a stack of them is needed, got {x.ndim} dimensions",
            fix="use at least 2 dimensions",
        )
    return x
