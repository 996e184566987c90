"""layer_norm, rms_norm, group_norm and their gradients."""

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

#: columns and strips of rows that are worth a block each, when weights' gradients are added up
_ENOUGH_BLOCKS, _LEAST_ROWS = 512, 32


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch = Family(cupy, "norms")

    def given(array: Any) -> Any:
        """An argument of a kernel for an array that may not be there."""
        return 0 if array is None else dense(cupy, array)

    def forward(kernel: str, input: Any, parameters: tuple[Any, ...], n: int, *rest: Any) -> Any:
        out = cupy.empty(input.shape, input.dtype)
        rows = input.size // n
        arrays = (dense(cupy, input), *map(given, parameters), out)
        grid, block = min(rows, MOST_BLOCKS), row_threads(n)
        launch(kernel, input.dtype, grid, block, (*arrays, rows, n, *rest))
        return out

    def backward(
        kernel: str, grad: Any, input: Any, weight: Any, n: int, *rest: Any
    ) -> tuple[Any, ...]:
        """Gradient of the input, then mean and 1 / deviation of each row, and what was read."""
        rows, own = input.size // n, input.dtype
        out = cupy.empty(input.shape, own)
        mean, rstd = cupy.empty(rows, wide(own)), cupy.empty(rows, wide(own))
        grad, input = dense(cupy, grad), dense(cupy, input)
        arguments = (grad, input, given(weight), out, mean, rstd, rows, n, *rest)
        launch(kernel, own, min(rows, MOST_BLOCKS), row_threads(n), arguments)
        return out, (grad, input, mean, rstd)

    def by_column(arrays: tuple[Any, ...], shape: tuple[int, ...], has_bias: bool) -> Any:
        """Gradients of a weight of ``shape``, and of a bias: sums over strips of rows, added."""
        input, rows, n = arrays[1], arrays[2].size, prod(shape)
        tiles = -(-n // COLUMNS)
        strips = max(1, min(-(-rows // _LEAST_ROWS), _ENOUGH_BLOCKS // tiles))
        height = -(-rows // strips)
        strips = -(-rows // height)
        own = input.dtype
        parts = cupy.empty((2, strips, n), wide(own))
        results = cupy.empty(shape, own), cupy.empty(shape, own) if has_bias else 0
        arguments = (*arrays, parts, rows, n, height)
        launch("column_parts", own, tiles * strips, COLUMN_THREADS, arguments)
        launch("fold_parts", own, blocks(n), 256, (parts, *results, strips, n))
        return results

    def layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        if not _fits(input, normalized_shape, weight, bias):
            return NotImplemented
        n = prod(normalized_shape)
        return forward("layer_norm", input, (weight, bias), n, 1, n, 1, float(eps))

    def layer_norm_backward(
        grad_output: Any, input: Any, normalized_shape: Any, weight: Any, eps: float
    ) -> Any:
        if not _alike(grad_output, input) or not _fits(input, normalized_shape, weight):
            return NotImplemented
        n = prod(normalized_shape)
        options = (1, n, 1, float(eps))
        out, kept = backward("layer_norm_backward", grad_output, input, weight, n, *options)
        return out, *by_column(kept, tuple(normalized_shape), True)

    def rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Any:
        if not _fits(input, normalized_shape, weight):
            return NotImplemented
        eps = _eps_of(eps, input.dtype)
        return forward("rms_norm", input, (weight,), prod(normalized_shape), eps)

    def rms_norm_backward(
        grad_output: Any, input: Any, normalized_shape: Any, weight: Any, eps: float | None
    ) -> Any:
        if not _alike(grad_output, input) or not _fits(input, normalized_shape, weight):
            return NotImplemented
        eps = _eps_of(eps, input.dtype)
        arrays = grad_output, input, weight
        out, kept = backward("rms_norm_backward", *arrays, prod(normalized_shape), eps)
        return out, by_column(kept, tuple(normalized_shape), False)[0]

    def group_norm(input: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
        if not _groups_fit(input, num_groups, weight, bias):
            return NotImplemented
        channels, spatial = input.shape[1] // num_groups, prod(input.shape[2:])
        rest = (num_groups, channels, spatial, float(eps))
        return forward("layer_norm", input, (weight, bias), channels * spatial, *rest)

    def group_norm_backward(
        grad_output: Any, input: Any, num_groups: int, weight: Any, eps: float
    ) -> Any:
        if not _alike(grad_output, input) or not _groups_fit(input, num_groups, weight):
            return NotImplemented
        batch, every = input.shape[:2]
        channels, spatial, own = every // num_groups, prod(input.shape[2:]), input.dtype
        rest = (num_groups, channels, spatial, float(eps))
        arrays = grad_output, input, weight
        out, kept = backward("layer_norm_backward", *arrays, channels * spatial, *rest)
        of_weight, of_bias = cupy.empty(every, own), cupy.empty(every, own)
        arguments = (*kept, of_weight, of_bias, batch, every, spatial, num_groups)
        block = row_threads(batch * spatial)
        launch("group_norm_parameters", own, min(every, MOST_BLOCKS), block, arguments)
        return out, of_weight, of_bias

    return {
        "layer_norm": layer_norm,
        "layer_norm_backward": layer_norm_backward,
        "rms_norm": rms_norm,
        "rms_norm_backward": rms_norm_backward,
        "group_norm": group_norm,
        "group_norm_backward": group_norm_backward,
    }


def _eps_of(eps: float | None, dtype: Any) -> float:
    if eps is not None:
        return float(eps)
    return 2.0**-52 if dtype.itemsize == 8 else 2.0**-23


def _alike(grad: Any, input: Any) -> bool:
    return bool(grad.shape == input.shape and grad.dtype == input.dtype)


def _fits(input: Any, normalized_shape: Any, *parameters: Any) -> bool:
    """Whether kernels take it; what does not fit together is for the kernel below to refuse."""
    shape = tuple(normalized_shape)
    if not input.size or not shape or input.shape[-len(shape) :] != shape:
        return False
    return is_float(input.dtype) and all(
        p is None or (p.shape == shape and p.dtype == input.dtype) for p in parameters
    )


def _groups_fit(input: Any, num_groups: int, *parameters: Any) -> bool:
    if input.ndim < 2 or not input.size or num_groups < 1 or input.shape[1] % num_groups:
        return False
    return is_float(input.dtype) and all(
        p is None or (p.shape == input.shape[1:2] and p.dtype == input.dtype) for p in parameters
    )
