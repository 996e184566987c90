"""NumPy kernels that copy, convert and fill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch._warnings import warn_of_lost_imaginary
from coredispatch.backends.conversions import rounded_once, to_dtype
from coredispatch.backends.dtypes import stored
from coredispatch.backends.numpy.silence import silent
from coredispatch.registry.model.errors import ArgumentError, ShapeError
from coredispatch.registry.model.spelling import keeps_order

__all__ = ["KERNELS"]


def layout_order(x: np.ndarray, memory_format: Any) -> np.ndarray:
    """A copy of ``x`` in a memory format (None or "preserve_format": in its own order)."""
    if keeps_order(memory_format):
        # A stride of 0 has no order to preserve.
        return x.copy("K") if 0 not in x.strides else x.copy()
    name = str(memory_format).rpartition(".")[2]
    if name == "contiguous_format":
        return x.copy()
    return np.moveaxis(_channels_to_end(x, name).copy(), -1, 1)


def _channels_to_end(x: np.ndarray, name: str) -> np.ndarray:
    ndim = {"channels_last": 4, "channels_last_3d": 5}.get(name)
    if ndim is None:
        raise ArgumentError(
            f"memory format {name!r} is not known",
            fix="use 'contiguous_format', 'preserve_format', 'channels_last' or 'channels_last_3d'",
        )
    if x.ndim != ndim:
        raise ShapeError(f"memory format {name} needs {ndim} dimensions, got {x.ndim}")
    return np.moveaxis(x, 1, -1)


def contiguous(x: np.ndarray, memory_format: Any) -> np.ndarray:
    """``x`` itself where it is in the memory format already, else a copy that is."""
    if memory_format is None or str(memory_format).endswith("contiguous_format"):
        return x if x.flags.c_contiguous else x.copy()
    name = str(memory_format).rpartition(".")[2]
    if name == "preserve_format" or _channels_to_end(x, name).flags.c_contiguous:
        return x
    return layout_order(x, memory_format)


def copy_(x: np.ndarray, src: np.ndarray, non_blocking: bool) -> None:
    """Write ``src``, broadcast and cast, into ``x``."""
    if not isinstance(src, np.ndarray):
        src = np.asarray(src)
    if src.dtype == x.dtype:
        np.copyto(x, src)
        return
    if x.dtype.names is not None or src.dtype.names is not None:
        src = stored(src, x.dtype)
    if src.dtype.kind == "c" and x.dtype.kind not in "cb":
        src = src.real
        warn_of_lost_imaginary()
    np.copyto(x, rounded_once(src, x.dtype), "unsafe")


def fill(x: np.ndarray, value: Any) -> np.ndarray:
    """``value`` in the shape and dtype of ``x``."""
    if x.dtype.names is not None:
        return np.full(x.shape, stored(np.asarray(_one(value)), x.dtype))
    return np.full_like(x, _one(value), subok=False)


def fill_(x: np.ndarray, value: Any) -> None:
    """Set every element of ``x`` to ``value``; elements may share memory, all get the same."""
    value = _one(value)
    if x.dtype.names is not None:
        value = stored(np.asarray(value), x.dtype)
    _writeable(x)[...] = value


def _writeable(x: np.ndarray) -> np.ndarray:
    """``x``, or where it is read-only as :func:`expand` left it a view that is not."""
    if not x.flags.writeable and 0 in x.strides:
        x = x.view()
        x.flags.writeable = True
    return x


def _one(value: Any) -> Any:
    if type(value) is np.ndarray and value.ndim:
        raise ShapeError(f"fill takes a number or a 0-dim tensor, got shape {value.shape}")
    return value


def zero_(x: np.ndarray) -> None:
    """Set every element of ``x`` to 0; of numbers that have none (float8_e8m0fnu) to the least."""
    x = _writeable(x)
    x[...] = np.zeros((), x.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "clone": layout_order,
    "contiguous": contiguous,
    "to_dtype": silent(to_dtype),
    "copy_": silent(copy_),
    "fill": fill,
    "fill_": fill_,
    "zero_": zero_,
}
