"""What an author writes in the afternoon of docs/write_a_backend.md: the primitives that the
project of ``coredispatch new-backend`` lacks, here over NumPy. The tests add them to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import (
    IndexParts,
    NumpyStream,
    check_index,
    default_generator,
    numpy_dtype,
)

PARTS = IndexParts(np.ndarray, np.asarray, lambda x, dtype: x.astype(numpy_dtype(dtype)))


def axes(x: Any, dim: Any) -> Any:
    return None if dim is None or dim == () or not x.ndim else dim


def widened(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dim, keepdim: function(x, axis=axes(x, dim), keepdims=keepdim)


def product(x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    x = x if dtype is None else x.astype(dtype)
    return np.prod(widened(x), axis=axes(x, dim), keepdims=keepdim)


def running(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dim, dtype: function(widened(x), dim, dtype).reshape(x.shape)


def joined(arrays: Any, dim: int) -> Any:
    return np.concatenate([x for x in arrays if x.shape != (0,)] or arrays[:1], dim)


def padded(x: Any, pad: Any, value: Any) -> Any:
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2]))[::-1]
    out = np.pad(x, np.maximum(pairs, 0), constant_values=value) if pairs else x
    return out[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(out.shape, pairs))]


def ordered(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    v = np.atleast_1d(x)
    keys = v.astype(np.float32) if v.dtype.kind == "V" else v  # bfloat16 does not sort NaN
    order = np.argsort(np.flip(keys, dim) if descending else keys, axis=dim, kind="stable")
    order = v.shape[dim] - 1 - np.flip(order, dim) if descending else order
    return np.take_along_axis(v, order, dim).reshape(x.shape), order.reshape(x.shape)


def part(x: Any, index: Any) -> Any:
    basic, advanced = PARTS.split(x.shape, index)
    return x[(*(basic or ()), ...)], (...,) if advanced is None else advanced


def selected(x: Any, index: Any) -> Any:
    view, where = part(x, index)
    return view[where]


def written(x: Any, index: Any, values: Any, accumulate: bool) -> Any:
    out = x.copy()
    target, where = part(out, index)
    if accumulate:
        np.add.at(target, where, values)
    else:
        target[where] = values
    return out


def located(x: Any, dim: int, index: Any, src: Any = None, add: bool = False) -> Any:
    v, where = np.atleast_1d(x), np.atleast_1d(index)
    check_index(where, v.shape[dim])
    cut = tuple(map(slice, where.shape))
    grid = tuple(where if d == dim % v.ndim else g for d, g in enumerate(np.ogrid[cut]))
    if src is None:
        return v[grid].reshape(index.shape)
    src = np.atleast_1d(src)[cut] if isinstance(src, np.ndarray) else src
    return written(v, grid, src, add).reshape(x.shape)


def drawn(name: str) -> Callable[..., Any]:
    def run(size: Any, a: Any, b: Any, dtype: Any, device: Any, generator: Any) -> Any:
        source = (generator or default_generator(device.type)).stream(NumpyStream)
        return getattr(source, name)(size, a, b, dtype)

    return run


def factored(a: Any, mode: str) -> Any:
    q, r = np.linalg.qr(a, "reduced" if mode == "r" else mode)
    return (q.reshape(-1)[:0], r) if mode == "r" else (q, r)


def transformed(x: Any, dim: Any, norm: Any, forward: bool) -> Any:
    transform = np.fft.fftn if forward else np.fft.ifftn
    return transform(x, axes=dim, norm=norm)


def solved(a: Any, b: Any, left: bool) -> Any:
    return np.linalg.solve(a, b) if left else np.linalg.solve(a.mT, b.mT).mT


def linear_algebra(name: str) -> Callable[..., Any]:
    return lambda *args: tuple(getattr(np.linalg, name)(*args))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "cos": np.cos,
    "sin": np.sin,
    "tanh": np.tanh,
    "floor": np.floor,
    "round": np.round,
    "nextafter": np.nextafter,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "amin": reduced(np.min),
    "any": reduced(np.any),
    "argmax": reduced(np.argmax),
    "argmin": reduced(np.argmin),
    "prod": product,
    "cumsum": running(np.cumsum),
    "cumprod": running(np.cumprod),
    "flip": lambda x, dims: np.flip(x, dims if x.ndim else ()),
    "nonzero": np.argwhere,
    "cat": joined,
    "constant_pad_nd": padded,
    "sort": ordered,
    "getitem": selected,
    "index_put": written,
    "gather": located,
    "scatter": located,
    "scatter_add": lambda x, dim, index, src: located(x, dim, index, src, add=True),
    "arange": lambda start, end, step, *_: np.arange(
        0 if end is None else start, start if end is None else end, step
    ),
    "view_as_real": lambda x: np.stack([x.real, x.imag], -1),
    "view_as_complex": lambda x: x.view(np.result_type(x, np.complex64))[..., 0],
    "random_uniform": drawn("uniform"),
    "random_normal": drawn("normal"),
    "random_integers": drawn("integers"),
    "cholesky": lambda x, upper: np.linalg.cholesky(x, upper=upper),
    "linalg_eig": lambda x: tuple(np.linalg.eig(x.astype(np.result_type(x, np.complex64)))),
    "linalg_eigh": linear_algebra("eigh"),
    "linalg_slogdet": linear_algebra("slogdet"),
    "linalg_svd": linear_algebra("svd"),
    "linalg_qr": factored,
    "linalg_solve": solved,
    "fft_c2c": transformed,
    "view_dtype": lambda x, dtype: x.view(dtype),
}
