"""``nn.quantized``: layers on quantized tensors; ``dynamic`` has those on float ones."""

from __future__ import annotations

from coredispatch.frontend.ao.nn.quantized import dynamic
from coredispatch.frontend.ao.nn.quantized.functional_modules import (
    FloatFunctional,
    FXFloatFunctional,
    QFunctional,
)
from coredispatch.frontend.ao.nn.quantized.layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    DeQuantize,
    Linear,
    Quantize,
)
from coredispatch.frontend.ao.nn.quantized.requantizing import (
    ELU,
    BatchNorm2d,
    BatchNorm3d,
    Dropout,
    GroupNorm,
    Hardswish,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LeakyReLU,
    PReLU,
    ReLU6,
    Sigmoid,
    Softmax,
)

__all__ = [
    "ELU",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "DeQuantize",
    "Dropout",
    "FXFloatFunctional",
    "FloatFunctional",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "PReLU",
    "QFunctional",
    "Quantize",
    "ReLU6",
    "Sigmoid",
    "Softmax",
    "dynamic",
]
