"""Cumulative sums along any dimension, and products along all but the last.

Few long rows are left to CuPy, whose scan cuts a row into parts for many blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.plugin import numpy_dtype
from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS, along, blocks, dense, row_threads
from coredispatch_cuda_cupy.cuda.loading import Family

__all__ = ["SCANNED", "kernels"]

SCANNED = ("float32", "float64", "float16", "bfloat16", "int64")
#: a line of at most so many elements, or so many lines, are enough work for the kernels here
_SHORT, _MANY = 4096, 512


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch = Family(cupy, "scans")

    def run(name: str, self: Any, dim: int, dtype: Any) -> Any:
        spans = along(self.shape, dim)
        if spans is None or self.dtype.name not in SCANNED:
            return NotImplemented
        if dtype is not None and numpy_dtype(dtype) != self.dtype:
            return NotImplemented
        outer, n, inner = spans
        if (n > _SHORT and outer * inner < _MANY) or (inner == 1 and name == "cumprod"):
            return NotImplemented
        out = cupy.empty(self.shape, self.dtype)
        if self.size:
            rows = inner == 1
            grid = min(outer, MOST_BLOCKS) if rows else blocks(outer * inner)
            block = row_threads(n) if rows else 256
            launch(name, self.dtype, grid, block, (dense(cupy, self), out, *spans))
        return out

    def cumsum(self: Any, dim: int, dtype: Any) -> Any:
        return run("cumsum", self, dim, dtype)

    def cumprod(self: Any, dim: int, dtype: Any) -> Any:
        return run("cumprod", self, dim, dtype)

    return {"cumsum": cumsum, "cumprod": cumprod}
