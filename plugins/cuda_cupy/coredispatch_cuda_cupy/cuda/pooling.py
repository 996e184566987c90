"""Maximum and average pooling over one or two dimensions, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS, blocks, dense
from coredispatch_cuda_cupy.cuda.loading import Family, is_float

__all__ = ["kernels"]


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch = Family(cupy, "pooling")

    def run(name: str, own: Any, count: int, given: tuple[Any, ...]) -> None:
        launch(name, own, blocks(count), 256, given)

    def maxima(input: Any, options: tuple[Any, ...], values: bool, places: bool) -> Any:
        """Maxima, their places, and the geometry; None where kernels do not take it."""
        geometry = _geometry(input.shape, *options)
        if geometry is None or not _taken(input):
            return None
        output, sizes = geometry
        shape = (*input.shape[: input.ndim - len(output)], *output)
        out: Any = cupy.empty(shape, input.dtype) if values else 0
        index: Any = cupy.empty(shape, "int64") if places else 0
        run("max_pool", input.dtype, prod(shape), (dense(cupy, input), out, index, *sizes))
        return out, index, sizes

    def max_pool(input: Any, *options: Any) -> Any:
        found = maxima(input, options, True, False)
        return NotImplemented if found is None else found[0]

    def max_pool_with_indices(input: Any, *options: Any) -> Any:
        found = maxima(input, options, True, True)
        return NotImplemented if found is None else found[:2]

    def max_pool_backward(grad_output: Any, input: Any, *options: Any) -> Any:
        geometry = _geometry(input.shape, *options)
        if geometry is None or grad_output.dtype != input.dtype or not _taken(input):
            return NotImplemented
        if grad_output.shape != (*input.shape[: input.ndim - len(geometry[0])], *geometry[0]):
            return NotImplemented
        _, index, sizes = maxima(input, options, False, True)
        out = cupy.empty(input.shape, input.dtype)
        given = (dense(cupy, grad_output), index, out, *sizes)
        run("max_pool_backward", input.dtype, input.size, given)
        return out

    def avg_pool(
        input: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Any:
        ones = (1,) * len(kernel_size)
        geometry = _geometry(input.shape, kernel_size, stride, padding, ones, ceil_mode)
        if geometry is None or not _taken(input):
            return NotImplemented
        output, sizes = geometry
        out = cupy.empty((*input.shape[: input.ndim - len(output)], *output), input.dtype)
        rest = (*sizes[:-2], int(count_include_pad), divisor_override or 0)
        run("avg_pool", input.dtype, out.size, (dense(cupy, input), out, *rest))
        return out

    def avg_pool_backward(
        grad_output: Any,
        input_shape: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Any:
        ones, shape = (1,) * len(kernel_size), tuple(input_shape)
        geometry = _geometry(shape, kernel_size, stride, padding, ones, ceil_mode)
        if geometry is None or not _taken(grad_output):
            return NotImplemented
        output, sizes = geometry
        if grad_output.shape != (*shape[: len(shape) - len(output)], *output):
            return NotImplemented
        out = cupy.empty(shape, grad_output.dtype)
        rest = (*sizes[:-2], int(count_include_pad), divisor_override or 0)
        run("avg_pool_backward", out.dtype, out.size, (dense(cupy, grad_output), out, *rest))
        return out

    def adaptive_avg_pool(input: Any, output_size: Any) -> Any:
        sizes = _planes(input.shape, output_size)
        if sizes is None or not _taken(input) or 0 in output_size:
            return NotImplemented
        out = cupy.empty((*input.shape[: -len(output_size)], *output_size), input.dtype)
        given = (dense(cupy, input), out, *sizes)
        launch("adaptive_avg_pool", input.dtype, min(out.size, MOST_BLOCKS), 32, given)
        return out

    def adaptive_avg_pool_backward(grad_output: Any, input_shape: Any, output_size: Any) -> Any:
        sizes = _planes(tuple(input_shape), output_size)
        if sizes is None or not _taken(grad_output) or 0 in input_shape:
            return NotImplemented
        out = cupy.empty(tuple(input_shape), grad_output.dtype)
        given = (dense(cupy, grad_output), out, *sizes)
        run("adaptive_avg_pool_backward", out.dtype, out.size, given)
        return out

    return {
        "max_pool": max_pool,
        "max_pool_with_indices": max_pool_with_indices,
        "max_pool_backward": max_pool_backward,
        "avg_pool": avg_pool,
        "avg_pool_backward": avg_pool_backward,
        "adaptive_avg_pool": adaptive_avg_pool,
        "adaptive_avg_pool_backward": adaptive_avg_pool_backward,
    }


def _taken(array: Any) -> bool:
    return bool(array.size) and is_float(array.dtype)


def _planes(shape: tuple[int, ...], output: Any) -> tuple[int, ...] | None:
    """``(planes, h, w, oh, ow)``; None for other than one or two dimensions."""
    n = len(output)
    if n not in (1, 2) or len(shape) < n:
        return None
    spatial = (1,) * (2 - n) + tuple(shape[len(shape) - n :])
    return prod(shape[: len(shape) - n]), *spatial, *((1,) * (2 - n)), *output


@lru_cache(maxsize=4096)
def _all_inside(size: int, count: int, k: int, stride: int, padding: int, dilation: int) -> bool:
    """Whether each window has an element; one of few elements far apart may step over all."""
    starts = range(-padding, count * stride - padding, stride)
    return all(any(0 <= s + j * dilation < size for j in range(k)) for s in starts)


def _geometry(
    shape: tuple[int, ...], kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Output size, and what kernels are told; None where a window has no place or no element, or
    for other than one or two dimensions.
    """
    n = len(kernel)
    if n not in (1, 2) or len(shape) < n:
        return None
    output = []
    for size, k, s, p, d in zip(shape[-n:], kernel, stride, padding, dilation, strict=True):
        span = d * (k - 1) + 1
        room = size + 2 * p - span
        count = (room + s - 1 if ceil_mode else room) // s + 1
        if ceil_mode and (count - 1) * s >= size + p:
            count -= 1
        if count < 1 or 2 * p > span or (d > 1 and not _all_inside(size, count, k, s, p, d)):
            return None
        output.append(count)
    planes = _planes(shape, output)
    assert planes is not None
    one, none = (1,) * (2 - n), (0,) * (2 - n)
    windows = (*one, *kernel, *one, *stride, *none, *padding, *one, *dilation)
    return tuple(output), (*planes, *windows)
