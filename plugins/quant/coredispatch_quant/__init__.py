"""8-bit quantized tensors for coredispatch, as the layout ``quantized``.

Loaded through the entry point ``quant``; ``import coredispatch_quant`` gives the functions by
name.
"""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import Registrar, hookimpl
from coredispatch_quant.anywhere import ANYWHERE
from coredispatch_quant.array import QuantizedArray, qint8, quint8
from coredispatch_quant.cuda_rows import CUDA
from coredispatch_quant.layout import FROM_STRIDED, LAYOUT
from coredispatch_quant.observers import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
)
from coredispatch_quant.ops import (
    OPERATORS,
    dequantize,
    int_repr,
    q_per_channel_axis,
    q_per_channel_scales,
    q_per_channel_zero_points,
    q_scale,
    q_zero_point,
    quantize_per_channel,
    quantize_per_tensor,
    quantized_conv2d,
    quantized_linear,
)

__all__ = [
    "DeQuantize",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "PerChannelMinMaxObserver",
    "Quantize",
    "QuantizedArray",
    "QuantizedConv2d",
    "QuantizedLinear",
    "dequantize",
    "int_repr",
    "q_per_channel_axis",
    "q_per_channel_scales",
    "q_per_channel_zero_points",
    "q_scale",
    "q_zero_point",
    "qint8",
    "quantize_model",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quantized_conv2d",
    "quantized_linear",
    "quint8",
]

_MODULES = ("DeQuantize", "Quantize", "QuantizedConv2d", "QuantizedLinear")


def __getattr__(name: str) -> Any:
    # These import nn, which a program that only uses the operators does not need.
    if name in _MODULES:
        from coredispatch_quant import modules

        return getattr(modules, name)
    if name == "quantize_model":
        from coredispatch_quant.convert import quantize_model

        return quantize_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layout, its operators and its kernels."""
    registrar.op(*OPERATORS)
    registrar.layout(LAYOUT)
    registrar.kernels("quantized", ANYWHERE, boxed=True)
    registrar.kernels("quantized", CUDA, backend="cuda")
    registrar.kernels("cpu", FROM_STRIDED)


@hookimpl
def coredispatch_conformance() -> Any:
    """What only quantized tensors can be asked; see :mod:`coredispatch_quant.conformance`."""
    from coredispatch_quant import conformance

    return conformance


@hookimpl
def coredispatch_info() -> dict[str, Any]:
    """The arithmetic in one line."""
    return {"requantization": "QNNPACK q31, exact sums in float32 BLAS"}
