"""Layers that take and return quantized tensors."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import nn
from coredispatch.frontend.ao.nn.quantized.weights import Weighted, folded, observed_weight
from coredispatch.frontend.ao.schemes import of_plugin, quantized_type, scheme_of
from coredispatch.frontend.creation import tensor
from coredispatch.frontend.nn import functional as F
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Conv1d", "Conv2d", "Conv3d", "DeQuantize", "Linear", "Quantize"]


class Quantize(nn.Module):
    """A float tensor to a quantized one with a given scale and zero point."""

    def __init__(
        self, scale: Any, zero_point: Any, dtype: Any, factory_kwargs: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("scale", tensor([float(scale)]))
        self.register_buffer("zero_point", tensor([int(zero_point)]))
        self.dtype = quantized_type(dtype)

    def forward(self, X: Any) -> Any:
        """``X``, quantized."""
        quantize = of_plugin("quantize_per_tensor")
        return quantize(X, float(self.scale), int(self.zero_point), self.dtype)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        """From a :class:`QuantStub` that has observed."""
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        return Quantize(scale, zero_point, mod.activation_post_process.dtype)

    def extra_repr(self) -> str:
        """Parameters."""
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(nn.Module):
    """A quantized tensor to a float one."""

    def forward(self, Xq: Any) -> Any:
        """``Xq`` in float32."""
        return of_plugin("dequantize")(Xq)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        """From a :class:`DeQuantStub`."""
        return DeQuantize()


def _output(made: Any, mod: Any) -> Any:
    """The scale and zero point that were observed of the output of ``mod``."""
    scale, zero_point = mod.activation_post_process.calculate_qparams()
    made.scale, made.zero_point = float(scale), int(zero_point)
    return made


class _Layer(Weighted):
    _relu = False
    scale: float = 1.0
    zero_point: int = 0

    def get_extra_state(self) -> dict[str, Any]:
        """Scale and zero point of the output, for ``state_dict``."""
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`get_extra_state` gave."""
        self.scale, self.zero_point = float(state["scale"]), int(state["zero_point"])


class Linear(_Layer):
    """:class:`nn.Linear` in 8-bit integers; ``scale`` and ``zero_point`` are the output's."""

    def __init__(
        self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = "qint8"
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        zeros = TABLE.operator("zeros")
        weight = of_plugin("quantize_per_tensor")(
            zeros((out_features, in_features)), 1.0, 0, quantized_type(dtype)
        )
        self.set_weight_bias(weight, zeros((out_features,)) if bias_ else None)

    def _get_name(self) -> str:
        return "QuantizedLinearReLU" if self._relu else "QuantizedLinear"

    def forward(self, x: Any) -> Any:
        """``x`` is ``(..., in_features)``, quantized per tensor."""
        linear = of_plugin("quantized_linear")
        return linear(x, *self._weight_bias(), self.scale, self.zero_point, self._relu)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """From a layer that has observed its output, or one in training with quantization."""
        weight, bias, observer = folded(mod)
        made = cls(weight.shape[1], weight.shape[0], bias is not None)
        made.set_weight_bias(observed_weight(weight, observer), bias)
        return _output(made, mod)

    def extra_repr(self) -> str:
        """Sizes and parameters."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"scale={self.scale}, zero_point={self.zero_point}, qscheme={scheme_of(self._qweight)}"
        )


class _Conv(_Layer):
    _dims = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        if padding_mode != "zeros" or isinstance(padding, str):
            raise NotImplementedError(
                f"a quantized convolution pads with zeros, not with {padding_mode!r} and padding "
                f"{padding!r}\n  fix: pad with numbers and padding_mode='zeros'"
            )
        n = self._dims
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding, self.dilation = (
            (x,) * n if isinstance(x, int) else tuple(x)
            for x in (kernel_size, stride, padding, dilation)
        )
        zeros = TABLE.operator("zeros")
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        weight = of_plugin("quantize_per_tensor")(zeros(shape), 1.0, 0, quantized_type("qint8"))
        self.set_weight_bias(weight, zeros((out_channels,)) if bias else None)

    def _get_name(self) -> str:
        return f"QuantizedConv{'ReLU' if self._relu else ''}{self._dims}d"

    def forward(self, input: Any) -> Any:
        """``input`` is ``(N, C, *spatial)``, quantized per tensor."""
        options = self.stride, self.padding, self.dilation, self.groups
        weight, bias = self._weight_bias()
        if self._dims == 2:
            conv = of_plugin("quantized_conv2d")
            return conv(input, weight, bias, self.scale, self.zero_point, *options, self._relu)
        # There are no integer kernels for other dimensions: the exact numbers, rounded once.
        back = of_plugin("dequantize")
        conv = getattr(F, f"conv{self._dims}d")
        out = conv(back(input), back(weight), bias, *options)
        out = F.relu(out) if self._relu else out
        return of_plugin("quantize_per_tensor")(out, self.scale, self.zero_point, input.dtype)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """From a layer that has observed its output, or one in training with quantization."""
        weight, bias, observer = folded(mod)
        layer = mod[0] if isinstance(mod, nn.Sequential) else mod
        made = cls(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding,
            layer.dilation, layer.groups, bias is not None, layer.padding_mode,
        )  # fmt: skip
        made.set_weight_bias(observed_weight(weight, observer), bias)
        return _output(made, mod)

    def extra_repr(self) -> str:
        """Sizes and parameters."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, scale={self.scale}, zero_point={self.zero_point}"
        )
        if self.padding != (0,) * self._dims:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self._dims:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text + (", bias=False" if self._bias is None else "")


class Conv1d(_Conv):
    """:class:`nn.Conv1d` of quantized tensors."""

    _dims = 1


class Conv2d(_Conv):
    """:class:`nn.Conv2d` in 8-bit integers."""


class Conv3d(_Conv):
    """:class:`nn.Conv3d` of quantized tensors."""

    _dims = 3
