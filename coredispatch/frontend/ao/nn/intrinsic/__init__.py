"""``nn.intrinsic``: layers side by side that quantization treats as one; see ``fuse_modules``."""

from __future__ import annotations

from coredispatch.frontend.ao.nn.intrinsic import qat, quantized
from coredispatch.frontend.ao.nn.intrinsic.fused import (
    BNReLU2d,
    BNReLU3d,
    ConvBn1d,
    ConvBn2d,
    ConvBn3d,
    ConvBnReLU1d,
    ConvBnReLU2d,
    ConvBnReLU3d,
    ConvReLU1d,
    ConvReLU2d,
    ConvReLU3d,
    LinearBn1d,
    LinearReLU,
    _FusedModule,
)

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
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
    "_FusedModule",
    "qat",
    "quantized",
]
