"""Batch normalization of ``(batch, channels, *)`` and its gradients.

Of half precision, what there is one number per channel of is float32, also in results.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from coredispatch_cuda_cupy.cuda.layout import (
    COLUMN_THREADS,
    COLUMNS,
    MOST_BLOCKS,
    blocks,
    dense,
    row_threads,
)
from coredispatch_cuda_cupy.cuda.loading import Family, is_float, wide

__all__ = ["kernels"]

#: elements of a channel of an image: shorter ones are no work for a block
_SHORTEST = 32


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch = Family(cupy, "batch_norm")

    def per_channel(array: Any, own: Any) -> Any:
        """One number per channel as the kernels read it; 0 where there is none."""
        return 0 if array is None else dense(cupy, array.astype(wide(own), copy=False))

    def over_channels(name: str, own: Any, arrays: tuple[Any, ...], sizes: Any, *eps: Any) -> None:
        """A kernel that reduces each channel."""
        batch, channels, spatial = sizes
        if spatial == 1:
            grid = min(-(-channels // COLUMNS), MOST_BLOCKS)
            given = (*arrays, batch, channels, *eps)
            launch(f"{name}_columns", own, grid, COLUMN_THREADS, given)
        else:
            block = row_threads(batch * spatial)
            launch(f"{name}_rows", own, min(channels, MOST_BLOCKS), block, (*arrays, *sizes, *eps))

    def over_elements(name: str, own: Any, arrays: tuple[Any, ...], sizes: Any, eps: float) -> None:
        """A kernel that changes each element."""
        batch, channels, spatial = sizes
        if spatial < _SHORTEST:
            grid = blocks(prod(sizes))
            launch(f"{name}_each", own, grid, 256, (*arrays, *sizes, eps))
        else:
            grid = min(batch * channels, MOST_BLOCKS)
            launch(f"{name}_rows", own, grid, row_threads(spatial), (*arrays, *sizes, eps))

    def batch_norm_train(input: Any, weight: Any, bias: Any, eps: float) -> Any:
        sizes = _sizes(input, weight, bias)
        if sizes is None or input.size // sizes[1] < 2:
            return NotImplemented
        own, x = input.dtype, dense(cupy, input)
        out = cupy.empty(input.shape, own)
        mean, var = cupy.empty(sizes[1], wide(own)), cupy.empty(sizes[1], wide(own))
        over_channels("statistics", own, (x, mean, var), sizes)
        affine = per_channel(weight, own), per_channel(bias, own)
        over_elements("apply", own, (x, mean, var, *affine, out), sizes, float(eps))
        return out, mean, var

    def batch_norm_inference(
        input: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
    ) -> Any:
        sizes = _sizes(input, mean, var, weight, bias)
        if sizes is None:
            return NotImplemented
        own, out = input.dtype, cupy.empty(input.shape, input.dtype)
        given = [per_channel(array, own) for array in (mean, var, weight, bias)]
        over_elements("apply", own, (dense(cupy, input), *given, out), sizes, float(eps))
        return out

    def batch_norm_train_backward(
        grad_output: Any,
        mean_grad: Any,
        var_grad: Any,
        input: Any,
        weight: Any,
        mean: Any,
        var: Any,
        eps: float,
    ) -> Any:
        sizes = _sizes(input, weight, mean, var, mean_grad, var_grad)
        if sizes is None or grad_output.shape != input.shape or grad_output.dtype != input.dtype:
            return NotImplemented
        own, eps = input.dtype, float(eps)
        grad, x, out = dense(cupy, grad_output), dense(cupy, input), cupy.empty(input.shape, own)
        of_weight, of_bias = cupy.empty(sizes[1], wide(own)), cupy.empty(sizes[1], wide(own))
        mean, var = per_channel(mean, own), per_channel(var, own)
        over_channels("sums", own, (grad, x, mean, var, of_weight, of_bias), sizes, eps)
        weight, *of_statistics = (per_channel(a, own) for a in (weight, mean_grad, var_grad))
        arrays = (grad, x, mean, var, weight, of_weight, of_bias, *of_statistics, out)
        over_elements("backward", own, arrays, sizes, eps)
        return out, of_weight, of_bias

    return {
        "batch_norm_train": batch_norm_train,
        "batch_norm_train_backward": batch_norm_train_backward,
        "batch_norm_inference": batch_norm_inference,
    }


def _sizes(input: Any, *parameters: Any) -> tuple[int, int, int] | None:
    """``(batch, channels, spatial)``; None where kernels do not take it."""
    own = input.dtype
    if input.ndim < 2 or not input.size or not is_float(own):
        return None
    for p in parameters:
        if p is not None and (p.shape != input.shape[1:2] or p.dtype not in (own, wide(own))):
            return None
    return input.shape[0], input.shape[1], prod(input.shape[2:])
