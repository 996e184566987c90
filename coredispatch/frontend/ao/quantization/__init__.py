"""``cd.ao.quantization``, also ``cd.quantization``: stubs that programs put into their models.

Quantized tensors come from the plugin ``quant`` (``cd.quantize_per_tensor``). What would convert a
whole model raises NotImplementedError.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.announced import announced_function
from coredispatch.frontend.nn.module import Module

__all__ = [
    "DeQuantStub",
    "QuantStub",
    "QuantWrapper",
    "convert",
    "fuse_modules",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "prepare",
    "prepare_qat",
    "quantize",
    "quantize_dynamic",
]

_FIX = "quantize tensors with quantize_per_tensor and compute with them"


class QuantStub(Module):
    """Where a model's input would be quantized: returns it, as in PyTorch before ``convert``."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """``x``."""
        return x


class DeQuantStub(Module):
    """Where a model's output would be dequantized: returns it, as before ``convert``."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """``x``."""
        return x


class QuantWrapper(Module):
    """A module between a :class:`QuantStub` and a :class:`DeQuantStub`."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.quant = QuantStub()
        self.dequant = DeQuantStub()
        self.module = module
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        """The module's output."""
        return self.dequant(self.module(self.quant(X)))


convert = announced_function("ao.quantization.convert", _FIX)
fuse_modules = announced_function("ao.quantization.fuse_modules", _FIX)
get_default_qconfig = announced_function("ao.quantization.get_default_qconfig", _FIX)
get_default_qat_qconfig = announced_function("ao.quantization.get_default_qat_qconfig", _FIX)
prepare = announced_function("ao.quantization.prepare", _FIX)
prepare_qat = announced_function("ao.quantization.prepare_qat", _FIX)
quantize = announced_function("ao.quantization.quantize", _FIX)
quantize_dynamic = announced_function("ao.quantization.quantize_dynamic", _FIX)
