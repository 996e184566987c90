"""Products of 8-bit integers that are brought back to 8 bits: what quantized layers compute with.

Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference" (2018), equation 4; rounded as in QNNPACK and gemmlowp. A sum ``s``, with a multiplier
``m`` of 31 bits and a shift, becomes

1. ``q = (s * m + 2**30) >> 31`` in 64 bits: midpoints go up;
2. ``q / 2**shift``, to nearest, midpoints away from zero;
3. that plus the output's zero point, clamped from ``low`` to ``high``.

A negative shift makes the first division one by ``2**(31 + shift)``; there is no second then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.conv.reference import convolution_reference, convolution_shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import exact, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import DType, float64, int8, uint8
from coredispatch.registry.model.errors import DTypeError, ShapeError

__all__ = ["requantized_conv2d", "requantized_linear"]

_BYTES = (uint8, int8)
_METADATA: dict[str, Any] = {
    "dtypes": _BYTES,
    "tolerance": exact,
    "differentiable": False,
    "unbroadcast": False,
    "method": False,
    "namespace": (),
}

# ---- rules --------------------------------------------------------------------------------------


def _expect(ok: bool, found: Any, weight: Any, channels: Any, what: str) -> None:
    shapes = [tuple(x.shape) for x in channels]
    if not ok or any(shape != (weight.shape[0],) for shape in shapes):
        raise ShapeError(
            f"an input {tuple(found.shape)}, a weight {tuple(weight.shape)} and parameters of "
            f"channels {', '.join(map(str, shapes))}",
            fix=f"{what}; each parameter has one number for each output channel",
        )


def _linear_shape(self: Any, weight: Any, *rest: Any) -> tuple[int, ...]:
    fits = len(weight.shape) == 2 and self.ndim > 0 and self.shape[-1] == weight.shape[1]
    _expect(fits, self, weight, rest[:4], "the weight is (columns, the input's last dimension)")
    return (*self.shape[:-1], weight.shape[0])


def _conv_shape(self: Any, weight: Any, *rest: Any) -> Any:
    fits = len(weight.shape) == 4 and self.ndim == 4
    _expect(fits, self, weight, rest[:4], "input and weight have four dimensions")
    stride, padding, dilation, groups = rest[8:12]
    return convolution_shape(self, weight, None, stride, padding, dilation, False, (0, 0), groups)


def _bytes_only(self: Any, weight: Any, *_: Any) -> DType:
    for x in (self, weight):
        if x.dtype not in _BYTES:
            raise DTypeError(
                f"the factors are uint8 or int8, got {x.dtype.name}",
                fix="convert them first, for example x.to(cd.int8)",
            )
    return same(self)


# ---- definitions by NumPy, and samples ----------------------------------------------------------


def _rescaled(sums: Any, channels: Any, zero_point: int, low: int, high: int, dtype: Any) -> Any:
    """By Python's integers; ``sums`` is ``(..., output channels)``."""
    _, _, multipliers, shifts = channels
    if np.any(abs(shifts) > 31) or np.any((multipliers != 0) & (multipliers >> 30 != 1)):
        raise ValueError(f"no factors of 31 bits: multiplier {multipliers}, shift {shifts}")
    out = np.empty(sums.shape, dtype)
    for place in np.ndindex(*sums.shape):
        _, bias, multiplier, shift = (int(values[place[-1]]) for values in channels)
        first, second = 31 + min(shift, 0), max(shift, 0)
        value = (int(sums[place]) + bias) * multiplier
        value = (value + (1 << first >> 1)) >> first
        size = (abs(value) + (1 << second >> 1)) >> second
        out[place] = min(max((size if value >= 0 else -size) + zero_point, low), high)
    return out


def _centred(weight: Any, zeros: Any) -> Any:
    return weight.astype(np.float64) - zeros.reshape(-1, *[1] * (weight.ndim - 1))


def _linear_reference(
    self: Any, weight: Any, zeros: Any, bias: Any, multiplier: Any, shift: Any,
    self_zero_point: int, zero_point: int, low: int, high: int, kept: Any = None,
) -> Any:  # fmt: skip
    sums = (self.astype(np.float64) - self_zero_point) @ _centred(weight, zeros).T
    channels = zeros, bias, multiplier, shift
    return _rescaled(sums, channels, zero_point, low, high, self.dtype)


def _conv_reference(
    self: Any, weight: Any, zeros: Any, bias: Any, multiplier: Any, shift: Any,
    self_zero_point: int, zero_point: int, low: int, high: int, stride: Any, padding: Any,
    dilation: Any, groups: int, kept: Any = None,
) -> Any:  # fmt: skip
    sums = convolution_reference(
        self.astype(np.float64) - self_zero_point, _centred(weight, zeros), None, stride,
        padding, dilation, False, (0, 0), groups,
    )  # fmt: skip
    channels = zeros, bias, multiplier, shift
    found = _rescaled(np.moveaxis(sums, 1, -1), channels, zero_point, low, high, self.dtype)
    return np.moveaxis(found, -1, 1)


def _drawn(make: Any, *shape: int) -> Any:
    """Bytes over the whole range of the type; of other types numbers, which are refused."""
    drawn = make.index(shape, 256).astype(np.uint8)
    return drawn.view(np.int8) if make.dtype == np.int8 else drawn.astype(make.dtype)


def _output(make: Any, count: int, size: float) -> tuple[Any, ...]:
    """Parameters with which sums of about ``size`` cover the range of the type."""
    info = np.iinfo(np.int8 if make.dtype == np.int8 else np.uint8)
    low, high = int(info.min), int(info.max)
    shift = round(np.log2(size / 128))
    return (
        make.index((count,), 128),
        make.index((count,), 2000) - 1000,
        make.index((count,), 1 << 30) + (1 << 30),
        np.full(count, shift, np.int64) + make.index((count,), 3) - 1,
        100,
        low + 120,
        low,
        high,
    )


def _linear_samples(make: Any) -> Iterator[Sample]:
    for lead, depth, columns in (((5,), 7, 6), ((), 9, 1), ((2, 3), 64, 33), ((17,), 40, 35)):
        options = _output(make, columns, 1e4 * depth**0.5)
        yield Sample(_drawn(make, *lead, depth), _drawn(make, columns, depth), *options)
    zeros, bias, multiplier, _, *rest = _output(make, 4, 1e4)
    shift = np.array([-2, 0, 1, 31])  # factors from more than one to almost none
    for rows in (3, 0):
        first, second = _drawn(make, rows, 6), _drawn(make, 4, 6)
        yield Sample(first, second, zeros, bias, multiplier, shift, *rest)


def _conv_samples(make: Any) -> Iterator[Sample]:
    for stride, padding, dilation, groups, shape, columns in (
        ((1, 1), (1, 0), (1, 1), 1, (1, 2, 4, 3), 3),
        ((1, 1), (0, 0), (1, 1), 1, (2, 3, 6, 7), 5),
        ((2, 1), (1, 2), (1, 1), 1, (1, 4, 7, 6), 34),
        ((1, 1), (2, 1), (2, 1), 2, (2, 4, 7, 6), 6),
        ((1, 2), (1, 1), (1, 1), 6, (1, 6, 6, 7), 6),
    ):
        weight = _drawn(make, columns, shape[1] // groups, 3, 2)
        options = _output(make, columns, 1e4 * weight[0].size ** 0.5)
        yield Sample(_drawn(make, *shape), weight, *options, stride, padding, dilation, groups)


# ---- the operators ------------------------------------------------------------------------------


def _brought_back(
    sums: Tensor, bias: Tensor, multiplier: Tensor, shift: Tensor, zero_point: int, low: int,
    high: int, dtype: DType,
) -> Tensor:  # fmt: skip
    """Sums ``(..., output channels)``, whole numbers of float64, as bytes."""
    first, second = shift.clamp(max=0) + 31, shift.clamp(min=0)
    one = lazy.ones_like(shift)
    value = (sums.to(bias.dtype) + bias) * multiplier
    value = (value + ((one << first) >> 1)) >> first
    down = ((value < 0) & (second > 0)).to(value.dtype)
    value = (value + ((one << second) >> 1) - down) >> second
    return (value.clamp(low - zero_point, high - zero_point) + zero_point).to(dtype)


@composite(
    out=_linear_shape,
    dtype=_bytes_only,
    reference=_linear_reference,
    samples=_linear_samples,
    **_METADATA,
)
def requantized_linear(
    self: Tensor,
    weight: Tensor,
    zeros: Tensor,
    bias: Tensor,
    multiplier: Tensor,
    shift: Tensor,
    self_zero_point: int,
    zero_point: int,
    low: int,
    high: int,
    kept: object = None,
) -> Tensor:
    """``self @ weight.T`` of 8-bit integers, brought back to the type of ``self``.

    ``self`` is ``(..., k)`` and ``weight`` ``(n, k)``, uint8 or int8 each. Of each output channel,
    ``(n,)`` int64 each, ``zeros`` are the zero points of the weight, ``bias`` what is added to the
    sum of ``(self - self_zero_point) * (weight - zeros)``, ``multiplier`` 0, or from ``2**30`` up
    and below ``2**31``, and ``shift`` from -31 to 31. The total fits int32. ``zero_point``,
    ``low`` and ``high`` belong to the result, ``low <= zero_point <= high``.

    ``kept`` is a dict that belongs to ``weight``: kernels keep in it what they make of ``weight``
    and of the parameters of channels, which nobody writes to while it is in use. Raises ShapeError
    and DTypeError for factors that do not fit.
    """
    rows = self.to(float64) - self_zero_point
    columns = weight.to(float64) - zeros.unsqueeze(1)
    return _brought_back(
        rows @ columns.mT, bias, multiplier, shift, zero_point, low, high, self.dtype
    )


@composite(
    out=_conv_shape,
    dtype=_bytes_only,
    reference=_conv_reference,
    samples=_conv_samples,
    **_METADATA,
)
def requantized_conv2d(
    self: Tensor,
    weight: Tensor,
    zeros: Tensor,
    bias: Tensor,
    multiplier: Tensor,
    shift: Tensor,
    self_zero_point: int,
    zero_point: int,
    low: int,
    high: int,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    groups: int,
    kept: object = None,
) -> Tensor:
    """2-d cross-correlation of 8-bit integers; everything else as in :func:`requantized_linear`.

    ``self`` is ``(batch, channels, height, width)``, padded with its zero point, ``weight``
    ``(n, channels / groups, kernel_height, kernel_width)``; the result ``(batch, n, ...)`` may lie
    in memory with its channels last.
    """
    x = self.to(float64) - self_zero_point
    w = weight.to(float64) - zeros.reshape(-1, 1, 1, 1)
    sums = lazy.convolution(x, w, None, stride, padding, dilation, False, (0, 0), groups)
    found = _brought_back(
        sums.permute(0, 2, 3, 1), bias, multiplier, shift, zero_point, low, high, self.dtype
    )
    return found.permute(0, 3, 1, 2)
