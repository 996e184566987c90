"""``nn.intrinsic.qat``: fused layers in training, batch norm folded into the rounded weight."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import nn
from coredispatch.frontend.ao.nn import qat
from coredispatch.frontend.nn import functional as F

__all__ = [
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearReLU",
    "freeze_bn_stats",
    "update_bn_stats",
]


def _relu(name: str, base: Any) -> Any:
    doc = f":class:`nn.qat.{base.__name__}` and ReLU."
    return type(name, (base,), {"_relu": True, "__doc__": doc, "__module__": __name__})


LinearReLU = _relu("LinearReLU", qat.Linear)
ConvReLU1d = _relu("ConvReLU1d", qat.Conv1d)
ConvReLU2d = _relu("ConvReLU2d", qat.Conv2d)
ConvReLU3d = _relu("ConvReLU3d", qat.Conv3d)


class Normalized:
    """The layer's weight is scaled by the running deviation, rounded, and scaled back for the norm.

    Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference" (2018), 3.2.2.
    """

    _relu = False
    bn: Any
    weight: Any
    bias: Any
    weight_fake_quant: Any
    qconfig: Any

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer and the norm of ``mod``, which has a ``qconfig``."""
        layer, bn = mod[0], mod[1]
        made = cls._like(layer, mod.qconfig)  # type: ignore[attr-defined]
        made.weight, made.bias, made.bn = layer.weight, layer.bias, bn
        made.train(mod.training)
        return made

    def _folded(self, input: Any, apply: Any) -> Any:
        bn = self.bn
        factor = bn.weight * (bn.running_var + bn.eps).rsqrt()
        along = (-1, *[1] * (self.weight.ndim - 1))
        rounded = self.weight_fake_quant(self.weight * factor.reshape(along))
        channels = (1, -1, *[1] * (self.weight.ndim - 2))
        out = apply(input, rounded) / factor.reshape(channels)
        if self.bias is not None:
            out = out + self.bias.reshape(channels)
        out = bn(out)
        return F.relu(out) if self._relu else out

    def freeze_bn_stats(self) -> Any:
        """Use the running statistics from now on, and keep them."""
        self.bn.eval()
        return self

    def update_bn_stats(self) -> Any:
        """Use the batch's statistics again."""
        self.bn.train()
        return self


def _conv_bn(name: str, base: Any, norm: Any, relu: bool) -> Any:
    class ConvBn(Normalized, base):  # type: ignore[misc]  # the base is an argument
        _relu = relu

        def __init__(self, *args: Any, eps: float = 1e-5, momentum: float = 0.1, **kwargs: Any):
            base.__init__(self, *args, **kwargs)
            self.bn = norm(self.out_channels, eps, momentum)

        def forward(self, input: Any) -> Any:
            """Convolution, norm and perhaps ReLU."""
            return self._folded(input, lambda x, w: self._conv_forward(x, w, None))

    ConvBn.__name__ = ConvBn.__qualname__ = name
    ConvBn.__doc__ = f":class:`nn.qat.{base.__name__}`, batch norm{' and ReLU' if relu else ''}."
    return ConvBn


ConvBn1d = _conv_bn("ConvBn1d", qat.Conv1d, nn.BatchNorm1d, False)
ConvBn2d = _conv_bn("ConvBn2d", qat.Conv2d, nn.BatchNorm2d, False)
ConvBn3d = _conv_bn("ConvBn3d", qat.Conv3d, nn.BatchNorm3d, False)
ConvBnReLU1d = _conv_bn("ConvBnReLU1d", qat.Conv1d, nn.BatchNorm1d, True)
ConvBnReLU2d = _conv_bn("ConvBnReLU2d", qat.Conv2d, nn.BatchNorm2d, True)
ConvBnReLU3d = _conv_bn("ConvBnReLU3d", qat.Conv3d, nn.BatchNorm3d, True)


class LinearBn1d(Normalized, qat.Linear):
    """:class:`nn.qat.Linear` and batch norm."""

    def __init__(self, *args: Any, eps: float = 1e-5, momentum: float = 0.1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bn = nn.BatchNorm1d(self.out_features, eps, momentum)

    def forward(self, input: Any) -> Any:
        """Linear and norm."""
        return self._folded(input, lambda x, w: F.linear(x, w))


def freeze_bn_stats(mod: Any) -> None:
    """``model.apply(freeze_bn_stats)``: keep the running statistics."""
    if isinstance(mod, Normalized):
        mod.freeze_bn_stats()


def update_bn_stats(mod: Any) -> None:
    """``model.apply(update_bn_stats)``: use the batch's statistics again."""
    if isinstance(mod, Normalized):
        mod.update_bn_stats()
