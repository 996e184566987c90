"""Where a network's inputs and outputs change between float and integers."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn.module import Module

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class _Stub(Module):
    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """``x``."""
        return x


class QuantStub(_Stub):
    """Where a model's input is quantized: observes until ``convert`` replaces it."""


class DeQuantStub(_Stub):
    """Where a model's output is dequantized: does nothing until ``convert`` replaces it."""


class QuantWrapper(Module):
    """A module between a :class:`QuantStub` and a :class:`DeQuantStub`."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant = QuantStub(qconfig)
        self.dequant = DeQuantStub(qconfig)
        self.module = module
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        """The module's output."""
        return self.dequant(self.module(self.quant(X)))
