"""``nn.intrinsic.quantized``: layers with ReLU on quantized tensors."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.ao.nn.quantized import layers, requantizing

__all__ = ["BNReLU2d", "BNReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearReLU"]


def _relu(name: str, base: Any) -> Any:
    doc = f":class:`nn.quantized.{base.__name__}` and ReLU."
    return type(name, (base,), {"_relu": True, "__doc__": doc, "__module__": __name__})


LinearReLU = _relu("LinearReLU", layers.Linear)
ConvReLU1d = _relu("ConvReLU1d", layers.Conv1d)
ConvReLU2d = _relu("ConvReLU2d", layers.Conv2d)
ConvReLU3d = _relu("ConvReLU3d", layers.Conv3d)
BNReLU2d = requantizing.of("BNReLU2d")
BNReLU3d = requantizing.of("BNReLU3d")
