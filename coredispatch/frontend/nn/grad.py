"""Gradients of convolutions as functions of their own."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.autograd.backward import grad as _gradient
from coredispatch.frontend.modes import enable_grad
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]


def _input(n: int, size: Any, weight: Any, grad_output: Any, *options: Any) -> Any:
    with enable_grad():
        x = weight.new_zeros(tuple(size)).requires_grad_()
        out = TABLE.operator(f"conv{n}d")(x, weight.detach(), None, *options)
    return _gradient(out, x, grad_output)[0]


def _weight(n: int, input: Any, size: Any, grad_output: Any, *options: Any) -> Any:
    with enable_grad():
        weight = input.new_zeros(tuple(size)).requires_grad_()
        out = TABLE.operator(f"conv{n}d")(input.detach(), weight, None, *options)
    return _gradient(out, weight, grad_output)[0]


def _functions(n: int) -> tuple[Any, Any]:
    def of_input(
        input_size: Any,
        weight: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        options = stride, padding, dilation, groups
        return _input(n, input_size, weight, grad_output, *options)

    def of_weight(
        input: Any,
        weight_size: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        options = stride, padding, dilation, groups
        return _weight(n, input, weight_size, grad_output, *options)

    of_input.__doc__ = f"The gradient of ``conv{n}d`` with respect to its input."
    of_weight.__doc__ = f"The gradient of ``conv{n}d`` with respect to its weight."
    of_input.__name__, of_weight.__name__ = f"conv{n}d_input", f"conv{n}d_weight"
    return of_input, of_weight


conv1d_input, conv1d_weight = _functions(1)
conv2d_input, conv2d_weight = _functions(2)
conv3d_input, conv3d_weight = _functions(3)
