"""Gradients of convolutions as functions of their own."""

from __future__ import annotations

from typing import Any

from coredispatch.ops.conv.reference import input_grad_shape, weight_grad_shape
from coredispatch.ops.support.windows import spatial_tuple
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]


def _batched(n: int, x: Any) -> Any:
    """A single sample as a batch of one."""
    return x.unsqueeze(0) if x.ndim == n + 1 else x


def _input(n: int, size: Any, weight: Any, grad_output: Any, *options: Any) -> Any:
    shape = tuple(size)
    batch = (1, *shape) if len(shape) == n + 1 else shape
    given = _batched(n, grad_output), weight, batch, *_each(n, *options)
    input_grad_shape(*given)  # kernels trust what the recorded convolution gives them
    return TABLE.operator("conv_input_grad")(*given).reshape(shape)


def _weight(n: int, input: Any, size: Any, grad_output: Any, *options: Any) -> Any:
    given = _batched(n, grad_output), _batched(n, input), tuple(size), *_each(n, *options)
    weight_grad_shape(*given)
    return TABLE.operator("conv_weight_grad")(*given)


def _each(n: int, stride: Any, padding: Any, dilation: Any, groups: int) -> tuple[Any, ...]:
    """The options, one number for each dimension."""
    return (
        spatial_tuple("stride", stride, n),
        spatial_tuple("padding", padding, n, least=0),
        spatial_tuple("dilation", dilation, n),
        groups,
    )


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
