"""Affine layers, and what only rearranges."""

from __future__ import annotations

import math
from typing import Any

from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn import init
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.lazy import LazyModuleMixin, uninitialized
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear", "NonDynamicallyQuantizableLinear"]

_linear = TABLE.operator("linear")
_bilinear = TABLE.operator("bilinear")
_empty = TABLE.operator("empty")


class Identity(Module):
    """Returns its argument, whatever it was made with."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input."""
        return input


class Linear(Module):
    """``input @ weight.T + bias``, ``(*, in_features)`` to ``(*, out_features)``.

    Weight and bias start uniform in ``+-1 / sqrt(in_features)``.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        where = {"device": device, "dtype": dtype}
        self.weight = Parameter(_empty((out_features, in_features), **where))
        if bias:
            self.bias = Parameter(_empty((out_features,), **where))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Any) -> Any:
        """The affine map."""
        return _linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, and whether there is a bias."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Bilinear(Module):
    """``input1^T weight[o] input2 + bias[o]`` for each output feature."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        where = {"device": device, "dtype": dtype}
        self.weight = Parameter(_empty((out_features, in1_features, in2_features), **where))
        if bias:
            self.bias = Parameter(_empty((out_features,), **where))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, uniform in ``+-1 / sqrt(in1_features)``."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Any, input2: Any) -> Any:
        """The bilinear map."""
        return _bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, and whether there is a bias."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class NonDynamicallyQuantizableLinear(Linear):
    """The output projection of attention; an ordinary :class:`Linear` here."""


class LazyLinear(LazyModuleMixin, Linear):
    """:class:`Linear` whose ``in_features`` is the last size of its first input."""

    cls_to_become = Linear
    weight: Any
    bias: Any

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.weight = uninitialized(device, dtype)
        self.out_features = out_features
        if bias:
            self.bias = uninitialized(device, dtype)

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, once they have a shape."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Any) -> None:
        """Take ``in_features`` from ``input``."""
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {input.shape[-1]} is not equal to "
                    f"in_features from self.weight: {self.weight.shape[-1]}"
                )
            self.in_features = input.shape[-1]
