"""Convolution: one general operator and its two gradients.

All of it rests on the correlation ``y[n, o, i] = sum_{c, k} w[o, c, k] * x[n, c, s * i + d * k]``.
Its gradients with respect to ``x`` and ``w`` are ``conv_input_grad`` and ``conv_weight_grad``;
a transposed convolution is the first of them; and the three are closed under differentiation,
so that derivatives of any order need no further kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from coredispatch.ops.conv.reference import (
    convolution_reference,
    convolution_shape,
    forward_samples,
    gradient_samples,
    input_grad_reference,
    input_grad_shape,
    weight_grad_reference,
    weight_grad_shape,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.rules import dot, promote
from coredispatch.ops.support.windows import Ints, spatial_tuple, windows
from coredispatch.registry import composite

# ---- the general operator and its gradients ---------------------------------------------------


def _columns(
    x: Tensor,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    output: Sequence[int] | None = None,
) -> Tensor:
    """The windows of ``x``, all or the first ``output``: ``(N, groups, windows, C/groups * K)``."""
    n = len(kernel)
    if any(padding):
        x = lazy.pad(x, [p for p in reversed(padding) for _ in range(2)])
    w = windows(x, kernel, stride, dilation)
    if output is not None and w.shape[2 : 2 + n] != tuple(output):
        w = w[(slice(None), slice(None), *map(slice, output))]
    batch, channels, output = w.shape[0], w.shape[1], w.shape[2 : 2 + n]
    w = w.reshape(batch, groups, channels // groups, *output, *kernel)
    place = range(3, 3 + n)
    w = w.permute(0, 1, *place, 2, *(i + n for i in place))
    return w.reshape(batch, groups, prod(output), channels // groups * prod(kernel))


@composite(
    out=convolution_shape,
    dtype=promote,
    unbroadcast=False,
    cast="lower",
    reference=convolution_reference,
    samples=forward_samples(2, general=True),
    dtypes="float",
    tolerance=dot,
    namespace="",
)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    transposed: bool,
    output_padding: IntList,
    groups: int,
) -> Tensor:
    """Convolution over any number of spatial dimensions; all the named forms end here.

    ``input`` is ``(N, C, *spatial)``; ``weight`` is ``(O, C / groups, *kernel)``, or
    ``(C, O / groups, *kernel)`` when ``transposed``; ``bias`` is ``(O,)``. The result is
    ``(N, O, *output)``. Raises ``ShapeError`` where channels, kernel or bias do not fit.
    """
    full = convolution_shape(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    input, weight, bias = common(promote, input, weight, bias)
    n = input.ndim - 2
    stride = spatial_tuple("stride", stride, n)
    padding = spatial_tuple("padding", padding, n, least=0)
    dilation = spatial_tuple("dilation", dilation, n)
    if transposed:
        result = conv_input_grad(input, weight, full, stride, padding, dilation, groups)
    else:
        columns = _columns(input, weight.shape[2:], stride, padding, dilation, groups)
        matrix = weight.reshape(groups, weight.shape[0] // groups, columns.shape[-1])
        result = matrix.matmul(columns.mT).reshape(full)
    return result if bias is None else result + bias.reshape(-1, *(1,) * n)


def _conv_input_grad(
    grad: Any,
    input_shape: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    groups: Any,
) -> Any:
    of_input = _correlate if transposed else conv_input_grad
    return of_input(grad, adjoint(weight), input_shape, stride, padding, dilation, groups)


def _conv_weight_grad(
    grad: Any,
    input: Any,
    weight_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    groups: Any,
) -> Any:
    input = adjoint(input)
    small, large = (input, grad) if transposed else (grad, input)
    return conv_weight_grad(small, large, weight_shape, stride, padding, dilation, groups)


convolution.vjp(
    input=_conv_input_grad,
    weight=_conv_weight_grad,
    bias=lambda grad: grad.sum((0, *range(2, grad.ndim))),
)


def _correlate(
    x: Tensor,
    weight: Tensor,
    result_shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Tensor:
    """The plain convolution that :func:`conv_input_grad` is the adjoint of."""
    none = (0,) * (x.ndim - 2)
    result = convolution(x, weight, None, stride, padding, dilation, False, none, groups)
    # An output_padding beyond the stride made room for windows that gave nothing.
    fits = result.shape == tuple(result_shape)
    return result if fits else result[tuple(slice(n) for n in result_shape)]


def _placed(piece: Tensor, amounts: list[int]) -> Tensor:
    """``piece`` padded by ``amounts``, of which a negative one may crop all that there was."""
    lengths = [n for n in reversed(piece.shape[2:]) for _ in range(2)]
    if all(-amount <= n for amount, n in zip(amounts, lengths, strict=True)):
        return lazy.pad(piece, amounts)
    grown = lazy.pad(piece, [max(amount, 0) for amount in amounts])
    return lazy.pad(grown, [min(amount, 0) for amount in amounts])


@composite(
    out=input_grad_shape,
    dtype=promote,
    unbroadcast=False,
    cast="lower",
    reference=input_grad_reference,
    samples=gradient_samples("weight"),
    dtypes="float",
    tolerance=dot,
    namespace=(),
)
def conv_input_grad(
    grad_output: Tensor,
    weight: Tensor,
    input_shape: IntList,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    groups: int,
) -> Tensor:
    """Gradient of a convolution with respect to its input, of shape ``input_shape``.

    ``grad_output`` is ``(N, O, *output)``, ``weight`` is ``(O, C / groups, *kernel)``. Each window
    gives every position in it the product of its gradient with that position's weights.
    """
    n = grad_output.ndim - 2
    stride = spatial_tuple("stride", stride, n)
    padding = spatial_tuple("padding", padding, n, least=0)
    dilation = spatial_tuple("dilation", dilation, n)
    out_channels, per_group, *kernel = weight.shape
    batch, output, spatial = grad_output.shape[0], grad_output.shape[2:], input_shape[2:]
    rows = grad_output.reshape(batch, groups, out_channels // groups, prod(output))
    matrix = weight.reshape(groups, out_channels // groups, per_group * prod(kernel)).mT
    columns = matrix.matmul(rows).reshape(batch, groups * per_group, prod(kernel), *output)
    apart = tuple(o * s for o, s in zip(output, stride))
    total: Any = None
    for number, offset in enumerate(product(*map(range, kernel))):
        piece = columns[:, :, number]
        if max(stride) > 1:  # zeros between what neighbouring windows give
            piece = piece.reshape(*piece.shape[:2], *(size for o in output for size in (o, 1)))
            piece = lazy.pad(piece, [m for s in reversed(stride) for m in (0, s - 1, 0, 0)])
            piece = piece.reshape(*piece.shape[:2], *apart)
        amounts: list[int] = []
        for i in reversed(range(n)):
            before = offset[i] * dilation[i] - padding[i]
            amounts += [before, spatial[i] - before - apart[i]]
        piece = _placed(piece, amounts)
        total = piece if total is None else total + piece
    return total


conv_input_grad.vjp(
    grad_output=lambda grad, grad_output_shape, weight, stride, padding, dilation, groups: (
        _correlate(grad, adjoint(weight), grad_output_shape, stride, padding, dilation, groups)
    ),
    weight=lambda grad, grad_output, weight_shape, stride, padding, dilation, groups: (
        lazy.conv_weight_grad(
            adjoint(grad_output), grad, weight_shape, stride, padding, dilation, groups
        )
    ),
)


@composite(
    out=weight_grad_shape,
    dtype=promote,
    unbroadcast=False,
    cast="lower",
    reference=weight_grad_reference,
    samples=gradient_samples("input"),
    dtypes="float",
    tolerance=dot,
    namespace=(),
)
def conv_weight_grad(
    grad_output: Tensor,
    input: Tensor,
    weight_shape: IntList,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    groups: int,
) -> Tensor:
    """Gradient of a convolution with respect to its weight, of shape ``weight_shape``.

    ``grad_output`` is ``(N, O, *output)``, ``input`` is ``(N, C, *spatial)``.
    """
    n = input.ndim - 2
    stride = spatial_tuple("stride", stride, n)
    padding = spatial_tuple("padding", padding, n, least=0)
    dilation = spatial_tuple("dilation", dilation, n)
    batch, out_channels, *output = grad_output.shape
    columns = _columns(input, weight_shape[2:], stride, padding, dilation, groups, output)
    rows = grad_output.reshape(batch, groups, out_channels // groups, prod(output))
    return rows.matmul(columns).sum(0).reshape(weight_shape)


conv_weight_grad.vjp(
    grad_output=lambda grad, grad_output_shape, input, stride, padding, dilation, groups: (
        _correlate(adjoint(input), grad, grad_output_shape, stride, padding, dilation, groups)
    ),
    input=lambda grad, grad_output, input_shape, stride, padding, dilation, groups: conv_input_grad(
        adjoint(grad_output), grad, input_shape, stride, padding, dilation, groups
    ),
)
