"""Numbers rounded to integers of 8 bits and back, and what training has in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, INT64, is_dense, is_like
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS"]

_SPLIT = 65536
_LEAST = 64
_FLOAT32, _UINT8, _INT8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)
_store, _restore, _pretend, _pretend_backward = (
    Loop("nn.quantizing", name, _SPLIT)
    for name in ("store", "restore", "pretend", "pretend_backward")
)


def numbers_to_bytes(x: Any, scale: Any, zero: Any, signed: bool) -> Any:
    """``clamp(round(x / scale) + zero)`` of float32 numbers."""
    if type(x) is not np.ndarray or x.dtype != _FLOAT32 or x.size < _LEAST:
        return NotImplemented
    # The inverse of other scales is not a normal number in float32, or next to none.
    if not (x.flags.c_contiguous and type(scale) is float and 1e-30 < scale < 1e30):
        return NotImplemented
    if type(zero) is not int:
        return NotImplemented
    low, high = (-128, 127) if signed else (0, 255)
    if not low <= zero <= high:
        return NotImplemented
    out, bad, size = np.empty(x.shape, _INT8 if signed else _UINT8), np.zeros(1, INT64), x.size
    _store(_FLOAT32, size, size, x, 1.0 / scale, zero, low - zero, high - zero, scale, out, bad)
    return NotImplemented if bad[0] else out  # the definition says what is wrong with NaN


def bytes_to_numbers(x: Any, scale: Any, zero: Any) -> Any:
    """``(x - zero) * scale`` in float32."""
    if type(x) is not np.ndarray or x.itemsize != 1 or x.dtype.kind not in "iu":
        return NotImplemented
    if x.size < _LEAST or not x.flags.c_contiguous:
        return NotImplemented
    if type(scale) is not float or type(zero) is not int:
        return NotImplemented
    out, size = np.empty(x.shape, _FLOAT32), x.size
    _restore(_FLOAT32, size, size, x, x.dtype == _INT8, zero, scale, out)
    return out


def _parameters(scale: Any, zero: Any, low: Any, high: Any) -> bool:
    """Whether they are numbers that the operator takes."""
    if type(zero) is not int or type(low) is not int or type(high) is not int:
        return False
    return (type(scale) is float or type(scale) is int) and low <= zero <= high


def fake_quantize(self: Any, scale: Any, zero: Any, low: Any, high: Any) -> Any:
    """``(clamp(round(self / scale + zero), low, high) - zero) * scale``"""
    if not is_dense(self, _LEAST, FLOATS) or not _parameters(scale, zero, low, high):
        return NotImplemented
    out, size = np.empty(self.shape, self.dtype), self.size
    _pretend(self.dtype, size, size, self, scale, zero, low, high, out)
    return out


def fake_quantize_backward(grad: Any, self: Any, scale: Any, zero: Any, low: Any, high: Any) -> Any:
    """``grad`` where ``self`` is within the range of the integers, or NaN."""
    if not is_dense(self, _LEAST, FLOATS) or not is_like(grad, self):
        return NotImplemented
    if not _parameters(scale, zero, low, high):
        return NotImplemented
    out, size = np.empty(self.shape, self.dtype), self.size
    _pretend_backward(self.dtype, size, size, grad, self, scale, zero, low, high, out)
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "bytes_to_numbers": bytes_to_numbers,
    "fake_quantize_backward": fake_quantize_backward,
    "fake_quantize_per_tensor_affine": fake_quantize,
    "numbers_to_bytes": numbers_to_bytes,
}
