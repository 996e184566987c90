"""``nn.qat``: layers whose weight is rounded as the quantized one will be, while they train."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import nn
from coredispatch.frontend.nn import functional as F

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Linear"]


class _Rounded:
    """The weight goes through ``qconfig.weight()`` in every call."""

    _relu = False
    qconfig: Any
    weight: Any
    bias: Any
    weight_fake_quant: Any

    def _take(self, qconfig: Any) -> None:
        if not qconfig:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer ``mod``, which has a ``qconfig``, with the same parameters."""
        layer = mod[0] if isinstance(mod, nn.Sequential) else mod
        made = cls._like(layer, mod.qconfig)  # type: ignore[attr-defined]
        made.weight, made.bias = layer.weight, layer.bias
        made.train(mod.training)
        return made


class Linear(_Rounded, nn.Linear):
    """:class:`nn.Linear` with a rounded weight."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        nn.Linear.__init__(self, in_features, out_features, bias, device, dtype)
        self._take(qconfig)

    @classmethod
    def _like(cls, mod: Any, qconfig: Any) -> Any:
        return cls(mod.in_features, mod.out_features, mod.bias is not None, qconfig)

    def forward(self, input: Any) -> Any:
        """``input @ rounded.T + bias``"""
        out = F.linear(input, self.weight_fake_quant(self.weight), self.bias)
        return F.relu(out) if self._relu else out

    def to_float(self) -> Any:
        """The float layer with the same parameters."""
        layer = nn.Linear(self.in_features, self.out_features, self.bias is not None)
        layer.weight, layer.bias = self.weight, self.bias
        return nn.Sequential(layer, nn.ReLU()) if self._relu else layer


def _conv(name: str, base: Any) -> Any:
    class Conv(_Rounded, base):  # type: ignore[misc]  # the base is an argument
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
            qconfig: Any = None,
            device: Any = None,
            dtype: Any = None,
        ) -> None:
            base.__init__(
                self, in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                bias, padding_mode, device, dtype,
            )  # fmt: skip
            self._take(qconfig)

        @classmethod
        def _like(cls, mod: Any, qconfig: Any) -> Any:
            return cls(
                mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding,
                mod.dilation, mod.groups, mod.bias is not None, mod.padding_mode, qconfig,
            )  # fmt: skip

        def forward(self, input: Any) -> Any:
            """The convolution with the rounded weight."""
            out = self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)
            return F.relu(out) if self._relu else out

    Conv.__name__ = Conv.__qualname__ = name
    Conv.__doc__ = f":class:`nn.{name}` with a rounded weight."
    return Conv


Conv1d = _conv("Conv1d", nn.Conv1d)
Conv2d = _conv("Conv2d", nn.Conv2d)
Conv3d = _conv("Conv3d", nn.Conv3d)
