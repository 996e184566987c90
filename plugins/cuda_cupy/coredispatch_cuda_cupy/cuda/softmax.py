"""softmax, log_softmax and their gradients, along any dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.plugin import numpy_dtype
from coredispatch_cuda_cupy.cuda.layout import along, dense, line_grid
from coredispatch_cuda_cupy.cuda.loading import Family, is_float

__all__ = ["kernels"]


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch = Family(cupy, "softmax")

    def run(name: str, given: tuple[Any, ...], dim: int) -> Any:
        """The kernel over lines of arrays of one shape and dtype; rejects what has no lines."""
        first = given[0]
        spans = along(first.shape, dim)
        if spans is None or not is_float(first.dtype):
            return NotImplemented
        out = cupy.empty(first.shape, first.dtype)
        if first.size:
            grid, block = line_grid(*spans)
            arrays = [dense(cupy, x) for x in given]
            launch(name, first.dtype, grid, block, (*arrays, out, *spans))
        return out

    def converted(x: Any, dtype: Any) -> Any:
        wanted = None if dtype is None else numpy_dtype(dtype)
        return x.astype(wanted, copy=False) if wanted is not None and is_float(wanted) else x

    def softmax(self: Any, dim: int, dtype: Any) -> Any:
        return run("softmax", (converted(self, dtype),), dim)

    def log_softmax(self: Any, dim: int, dtype: Any) -> Any:
        return run("log_softmax", (converted(self, dtype),), dim)

    def softmax_backward(grad: Any, output: Any, dim: int) -> Any:
        if grad.shape != output.shape or grad.dtype != output.dtype:
            return NotImplemented
        return run("softmax_backward", (grad, output), dim)

    def log_softmax_backward(grad: Any, output: Any, dim: int) -> Any:
        if grad.shape != output.shape or grad.dtype != output.dtype:
            return NotImplemented
        return run("log_softmax_backward", (grad, output), dim)

    return {
        "softmax": softmax,
        "log_softmax": log_softmax,
        "softmax_backward": softmax_backward,
        "log_softmax_backward": log_softmax_backward,
    }
