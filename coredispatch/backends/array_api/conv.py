"""Convolution over an array-API namespace: windows gathered by slices, then one matrix product.

Nothing is written in place, so that namespaces with immutable arrays are served as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

from coredispatch.backends.array_api.window_slices import offset_index, pad, widened
from coredispatch.registry.model.errors import ArgumentError

__all__ = ["kernels"]

Ints = Sequence[int]


def per_dim(n: int, *amounts: Ints) -> list[tuple[int, ...]]:
    """Each of the amounts for ``n`` spatial dimensions; one number stands for all of them."""
    return [tuple(amount) * (n if len(amount) == 1 else 1) for amount in amounts]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """``convolution`` and its two gradients over ``xp``."""

    def columns(x: Any, kernel: Ints, stride: Ints, dilation: Ints, output: Ints) -> Any:
        """``(N, C, K, L)``: each window's elements, for every window."""
        batch, channels = x.shape[:2]
        pieces = [
            xp.reshape(
                x[offset_index(offset, stride, dilation, output)], (batch, channels, prod(output))
            )
            for offset in product(*map(range, kernel))
        ]
        return xp.stack(pieces, axis=2)

    def correlate(x: Any, weight: Any, stride: Ints, dilation: Ints, groups: int) -> Any:
        kernel = tuple(weight.shape[2:])
        output = tuple(
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation)
        )
        if min(output) < 1:
            raise ValueError(f"window {kernel} does not fit in {tuple(x.shape[2:])}")
        batch, out_channels = x.shape[0], weight.shape[0]
        inner = weight.shape[1] * prod(kernel)
        gathered = columns(x, kernel, stride, dilation, output)
        gathered = xp.reshape(gathered, (batch, groups, inner, prod(output)))
        matrix = xp.reshape(weight, (groups, out_channels // groups, inner))
        return xp.reshape(xp.matmul(matrix, gathered), (batch, out_channels, *output))

    def convolution(
        input: Any,
        weight: Any,
        bias: Any,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        transposed: bool,
        output_padding: Ints,
        groups: int,
    ) -> Any:
        n = input.ndim - 2
        stride, padding, dilation, extra = per_dim(n, stride, padding, dilation, output_padding)
        taken = weight.shape[0] if transposed else weight.shape[1] * groups
        made = weight.shape[1] * groups if transposed else weight.shape[0]
        if input.shape[1] != taken or (bias is not None and tuple(bias.shape) != (made,)):
            raise ValueError("channels of input, weight and bias do not match")
        if 0 in weight.shape[2:] or (transposed and 0 in input.shape[2:]):
            raise ValueError("an empty kernel or input")
        if groups < 1 or weight.shape[0] % groups:
            raise ArgumentError(
                f"groups={groups} does not divide the weight's first size {weight.shape[0]}",
                fix="use a divisor of the number of channels",
            )
        for name, amounts, least in (
            ("stride", stride, 1),
            ("padding", padding, 0),
            ("dilation", dilation, 1),
            ("output_padding", extra, 0),
        ):
            if min(amounts) < least:
                fix = f"give {least} or more"
                raise ArgumentError(f"{name}={amounts} is below {least}", fix=fix)
        x, w = widened(xp, input), widened(xp, weight)
        if transposed:
            spatial = tuple(
                (size - 1) * s - 2 * p + d * (k - 1) + e + 1
                for size, s, p, d, k, e in zip(
                    input.shape[2:], stride, padding, dilation, weight.shape[2:], extra
                )
            )
            shape = (input.shape[0], made, *spatial)
            result = conv_input_grad(x, w, shape, stride, padding, dilation, groups)
        else:
            result = correlate(pad(xp, x, padding, padding), w, stride, dilation, groups)
        if bias is not None:
            result = result + xp.reshape(widened(xp, bias), (made, *(1,) * n))
        return xp.astype(result, input.dtype, copy=False)

    def conv_input_grad(
        grad_output: Any,
        weight: Any,
        input_shape: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        groups: int,
    ) -> Any:
        """Columns from one matrix product, each kernel position's padded to its place."""
        n = grad_output.ndim - 2
        stride, padding, dilation = per_dim(n, stride, padding, dilation)
        grad, w = widened(xp, grad_output), widened(xp, weight)
        out_channels, per_group, *kernel = w.shape
        batch, output = grad.shape[0], tuple(grad.shape[2:])
        rows = xp.reshape(grad, (batch, groups, out_channels // groups, prod(output)))
        matrix = xp.reshape(w, (groups, out_channels // groups, per_group * prod(kernel)))
        columns = xp.matmul(xp.matrix_transpose(matrix), rows)
        columns = xp.reshape(columns, (batch, groups * per_group, prod(kernel), *output))
        apart = tuple(o * s for o, s in zip(output, stride))
        gaps = tuple(m for s in stride for m in (0, s - 1))
        total = None
        for number, offset in enumerate(product(*map(range, kernel))):
            piece = columns[:, :, number, ...]
            lead = tuple(piece.shape[:2])
            if max(stride) > 1:  # zeros between what neighbouring windows give
                piece = xp.reshape(piece, (*lead, *(size for o in output for size in (o, 1))))
                piece = xp.reshape(pad(xp, piece, (0,) * (2 * n), gaps), (*lead, *apart))
            before = [o * d - p for o, d, p in zip(offset, dilation, padding)]
            after = [s - b - a for s, b, a in zip(input_shape[2:], before, apart)]
            piece = pad(xp, piece, before, after)
            total = piece if total is None else total + piece
        return xp.astype(total, grad_output.dtype, copy=False)

    def conv_weight_grad(
        grad_output: Any,
        input: Any,
        weight_shape: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        groups: int,
    ) -> Any:
        stride, padding, dilation = per_dim(input.ndim - 2, stride, padding, dilation)
        grad = widened(xp, grad_output)
        x = pad(xp, widened(xp, input), padding, padding)
        batch, out_channels, *output = grad.shape
        kernel = tuple(weight_shape[2:])
        gathered = columns(x, kernel, stride, dilation, output)
        inner = weight_shape[1] * prod(kernel)
        gathered = xp.reshape(gathered, (batch, groups, inner, prod(output)))
        rows = xp.reshape(grad, (batch, groups, out_channels // groups, prod(output)))
        total = xp.total(xp.matmul(rows, xp.matrix_transpose(gathered)), axis=0)
        return xp.astype(xp.reshape(total, tuple(weight_shape)), grad_output.dtype, copy=False)

    return {
        "convolution": convolution,
        "conv_input_grad": conv_input_grad,
        "conv_weight_grad": conv_weight_grad,
    }
