"""Modules of a quantized network: what :func:`coredispatch_quant.quantize_model` builds."""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import Tensor, nn
from coredispatch_quant.array import quantized_dtype
from coredispatch_quant.ops import (
    dequantize,
    quantize_per_tensor,
    quantized_conv2d,
    quantized_linear,
)
from coredispatch_quant.windows import pair

__all__ = ["DeQuantize", "Quantize", "QuantizedConv2d", "QuantizedLinear"]


class Quantize(nn.Module):
    """Float input to a quantized tensor with the calibrated scale and zero point."""

    def __init__(self, scale: float, zero_point: int, dtype: Any = "quint8") -> None:
        super().__init__()
        self.scale, self.zero_point = float(scale), int(zero_point)
        self.dtype = quantized_dtype(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` in any shape, floating point."""
        return quantize_per_tensor(x, self.scale, self.zero_point, self.dtype)

    def get_extra_state(self) -> dict[str, Any]:
        """Scale, zero point and type, for ``state_dict``."""
        return {"scale": self.scale, "zero_point": self.zero_point, "dtype": self.dtype.name}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`get_extra_state` gave."""
        self.scale, self.zero_point = float(state["scale"]), int(state["zero_point"])
        self.dtype = quantized_dtype(state["dtype"])

    def extra_repr(self) -> str:
        """Scale, zero point and type."""
        return f"scale={self.scale:.6g}, zero_point={self.zero_point}, dtype={self.dtype.name}"


class DeQuantize(nn.Module):
    """A quantized tensor to float32."""

    def forward(self, x: Tensor) -> Tensor:
        """``x`` in any shape, quantized."""
        return dequantize(x)


class _Weighted(nn.Module):
    """A quantized weight, a float bias, and the scale and zero point of the output."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, scale: float, zero_point: int, relu: bool
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.scale, self.zero_point, self.relu = float(scale), int(zero_point), relu

    def get_extra_state(self) -> dict[str, Any]:
        """The output's scale and zero point, for ``state_dict``."""
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`get_extra_state` gave."""
        self.scale, self.zero_point = float(state["scale"]), int(state["zero_point"])

    def extra_repr(self) -> str:
        """Shape of the weight and the output's parameters."""
        relu = ", relu=True" if self.relu else ""
        return (
            f"weight={tuple(self.weight.shape)}, scale={self.scale:.6g}, "
            f"zero_point={self.zero_point}{relu}"
        )


class QuantizedLinear(_Weighted):
    """:func:`coredispatch_quant.quantized_linear` with its parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """``x`` is ``(..., in_features)``, quantized per tensor."""
        return quantized_linear(x, self.weight, self.bias, self.scale, self.zero_point, self.relu)


class QuantizedConv2d(_Weighted):
    """:func:`coredispatch_quant.quantized_conv2d` with its parameters."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        scale: float,
        zero_point: int,
        relu: bool = False,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> None:
        super().__init__(weight, bias, scale, zero_point, relu)
        self.stride, self.padding, self.dilation = pair(stride), pair(padding), pair(dilation)
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """``x`` is ``(batch, channels, height, width)``, quantized per tensor."""
        return quantized_conv2d(
            x,
            self.weight,
            self.bias,
            self.scale,
            self.zero_point,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.relu,
        )
