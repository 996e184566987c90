"""The raw data of the layout ``quantized``: integers with the scale that gives them meaning.

An affine quantized array stands for ``(data - zero_point) * scale`` (Jacob et al.,
*Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference*,
2018, equation 1). Scale and zero point belong to the whole array, or to each slice along
``axis``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError, DimError, DType, DTypeError, ShapeError

__all__ = ["QuantizedArray", "qint8", "quint8", "quantized_dtype"]

#: Signed and unsigned 8-bit affine types. They are types of their own, so that no operator takes
#: the stored integers for the values they stand for: promotion with any other type is refused.
qint8 = DType("qint8", "i", 1)
quint8 = DType("quint8", "u", 1)

_OF_STORAGE = {DType.of("int8"): qint8, DType.of("uint8"): quint8}
_STORAGE = {qint8: np.dtype(np.int8), quint8: np.dtype(np.uint8)}
_LIMITS = {qint8: (-128, 127), quint8: (0, 255)}


def quantized_dtype(dtype: Any) -> DType:
    """``qint8`` or ``quint8`` from itself, from ``int8``/``uint8`` or from a name.

    Raises DTypeError for anything else.
    """
    if dtype in _LIMITS:
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    found = {"qint8": qint8, "int8": qint8, "quint8": quint8, "uint8": quint8}.get(name)
    if found is None:
        raise DTypeError(
            f"{dtype!r} is not an 8-bit quantized type", fix="use qint8 (signed) or quint8"
        )
    return found


def storage_dtype(dtype: DType) -> np.dtype:
    """The NumPy integer type that stores ``qint8`` or ``quint8``."""
    return _STORAGE[dtype]


def limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest stored integer."""
    return _LIMITS[dtype]


class QuantizedArray:
    """An array of 8-bit integers ``data`` that stands for ``(data - zero_point) * scale``.

    Args:
        data: int8 or uint8, any shape: NumPy's, or an array of the device the tensor was moved to.
            Never written to afterwards. Scales and zero points stay on the host.
        scale: positive float, or one per slice along ``axis``.
        zero_point: the integer that stands for zero, within the range of ``data``; one number,
            or one per slice along ``axis``.
        axis: the dimension along which scale and zero point vary; None for one of each.

    Raises:
        DTypeError: ``data`` is neither int8 nor uint8.
        ShapeError: not one scale and zero point per slice. DimError: no such ``axis``.
        ArgumentError: a scale is not positive and finite, or a zero point is out of range.
    """

    __slots__ = ("axis", "cache", "data", "dtype", "scale", "zero_point")

    def __init__(
        self,
        data: Any,
        scale: float | Sequence[float] | np.ndarray,
        zero_point: int | Sequence[int] | np.ndarray = 0,
        axis: int | None = None,
    ) -> None:
        dtype = _OF_STORAGE.get(DType.of(data.dtype))
        if dtype is None:
            raise DTypeError(f"quantized data is int8 or uint8, got {data.dtype}")
        self.data = data
        self.dtype = dtype
        # Numbers, or arrays of one per slice along the axis.
        self.scale: Any
        self.zero_point: Any
        if axis is None:
            self.axis: int | None = None
            self.scale, self.zero_point = tensor_parameters(scale, zero_point, dtype)
        else:
            ndim = len(data.shape)
            if not -ndim <= axis < ndim:
                raise DimError(f"axis {axis} of an array with {ndim} dimensions")
            self.axis = axis % ndim
            self.scale, self.zero_point = channel_parameters(
                scale, zero_point, dtype, data.shape[self.axis]
            )
        # Forms of the integers that kernels worked out; sound because data is never written.
        self.cache: dict[str, Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the integers."""
        return tuple(self.data.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.data.shape)

    @property
    def per_channel(self) -> bool:
        """Whether scale and zero point vary along :attr:`axis`."""
        return self.axis is not None

    def like(self, data: Any) -> QuantizedArray:
        """Other integers with this array's scale, zero point and axis (not checked again)."""
        new = QuantizedArray.__new__(QuantizedArray)
        new.data, new.dtype, new.axis = data, self.dtype, self.axis
        new.scale, new.zero_point, new.cache = self.scale, self.zero_point, {}
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the checks: what comes out of a file is not to be trusted.
        return QuantizedArray, (self.data, self.scale, self.zero_point, self.axis)

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedArray:
        return self.like(self.data.copy())

    def along_axis(self, parameter: Any) -> Any:
        """A scale or zero point in a shape that broadcasts against the integers."""
        if self.axis is None:
            return parameter
        shape = [1] * self.ndim
        shape[self.axis] = -1
        return parameter.reshape(shape)

    def __repr__(self) -> str:
        axis = "" if self.axis is None else f", axis={self.axis}"
        return (
            f"QuantizedArray({self.data!r}, scale={self.scale!r}, "
            f"zero_point={self.zero_point!r}{axis})"
        )


def tensor_parameters(scale: Any, zero_point: Any, dtype: DType) -> tuple[float, int]:
    """One scale and one zero point, checked."""
    low, high = _LIMITS[dtype]
    if type(scale) is float and type(zero_point) is int and low <= zero_point <= high:
        if 0 < scale < math.inf:
            return scale, zero_point
    scales, zeros = _checked(np.atleast_1d(scale), np.atleast_1d(zero_point), dtype)
    if scales.size != 1 or zeros.size != 1:
        raise ShapeError(
            f"{scales.size} scales and {zeros.size} zero points without an axis",
            fix="quantize per channel, with axis=",
        )
    return float(scales[0]), int(zeros[0])


def channel_parameters(
    scale: Any, zero_point: Any, dtype: DType, channels: int
) -> tuple[np.ndarray, np.ndarray]:
    """``(channels,)`` float64 scales and int64 zero points, checked; one zero point is spread."""
    scales, zeros = np.asarray(scale), np.asarray(zero_point)
    if zeros.ndim == 0:
        zeros = np.broadcast_to(zeros, (channels,))
    if scales.shape != (channels,) or zeros.shape != (channels,):
        raise ShapeError(
            f"{channels} channels, but scales of shape {scales.shape} "
            f"and zero points of shape {zeros.shape}",
            fix="give one scale and one zero point per slice along axis",
        )
    return _checked(scales, zeros, dtype)


def _checked(scales: np.ndarray, zeros: np.ndarray, dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    scales = scales.astype(np.float64)
    if zeros.size and zeros.dtype.kind not in "iu":  # an empty list is an array of floats
        raise DTypeError(f"a zero point is an integer, got {zeros.dtype}")
    bad = np.flatnonzero(~(np.isfinite(scales) & (scales > 0)))
    if len(bad):
        raise ArgumentError(
            f"scale[{bad[0]}] is {scales[bad[0]]}", fix="a scale is positive and finite"
        )
    low, high = _LIMITS[dtype]
    bad = np.flatnonzero((zeros < low) | (zeros > high))
    if len(bad):
        raise ArgumentError(
            f"zero_point[{bad[0]}] is {zeros[bad[0]]}, outside {dtype.name}'s {low}..{high}",
            fix="the zero point is itself a stored integer",
        )
    return scales, zeros.astype(np.int64)
