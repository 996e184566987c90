"""Cumulative sums, products, extrema and logsumexp along any dimension.

A long row is cut into parts: one kernel folds each part, the next one goes on from what the parts
before it give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import numpy_dtype
from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS, along, blocks, dense, row_threads
from coredispatch_cuda_cupy.cuda.loading import FLOATS, Family

__all__ = ["SCANNED", "kernels", "scan_rows"]

SCANNED = (*FLOATS, "int64")
#: a line of at most so many elements, or so many lines, are enough work for a block or thread each
_SHORT, _MANY = 4096, 512
#: rows that a block multiplies along, its threads, and what rows may have where there are few
_TILE, _TILE_THREADS, _ALONE = 32, 256, 1024
#: parts of a row: so many at most, one for each thread of a block, and so many elements at least
_PARTS, _PART = 1024, 8192
#: bytes of what a part gives: a number in double precision, or a number and where it is
_FOLDED = {"cumsum": 8, "logcumsumexp": 8, "cummax": 16, "cummin": 16}


def scan_rows(
    cupy: Any, launch: Family, name: str, x: Any, spans: tuple[int, int, int]
) -> tuple[Any, Any]:
    """The scan of a dense array along the middle of ``spans``, and indices where there are any."""
    outer, n, inner = spans
    out = cupy.empty(x.shape, x.dtype)
    if name == "cumprod" and inner == 1 and x.size:
        given = (x, out, 0, *spans, n, 0)
        launch(name, x.dtype, min(-(-outer // _TILE), MOST_BLOCKS), _TILE_THREADS, given)
        return out, None
    indices = cupy.empty(x.shape, "int64") if name in ("cummax", "cummin") else None
    if not x.size:
        return out, indices
    part, folded, parts, rows = n, 0, 1, inner == 1
    if rows and n > _SHORT and outer < _MANY:
        part = max(_PART, -(-n // _PARTS))
        parts = -(-n // part)
    if parts > 1:
        folded = cupy.empty(outer * parts * _FOLDED[name], "uint8")
        grid = min(outer * parts, MOST_BLOCKS)
        launch(f"{name}_parts", x.dtype, grid, _PARTS, (x, outer, n, part, folded))
    grid = min(outer * parts, MOST_BLOCKS) if rows else blocks(outer * inner)
    block = _PARTS if parts > 1 else row_threads(n) if rows else 256
    given = (x, out, 0 if indices is None else indices, *spans, part, folded)
    launch(name, x.dtype, grid, block, given)
    return out, indices


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch = Family(cupy, "scans")

    def run(name: str, x: Any, dim: int) -> Any:
        """Values and indices; few long lines that do not lie along memory are copied first."""
        spans = along(x.shape, dim)
        if spans is None or x.dtype.name not in SCANNED:
            return None
        outer, n, inner = spans
        if inner > 1 and n > _SHORT and outer * inner < _MANY and name != "cumprod":
            rows = dense(cupy, cupy.moveaxis(x, dim, -1))
            values, indices = scan_rows(cupy, launch, name, rows, (outer * inner, n, 1))
            values = dense(cupy, cupy.moveaxis(values, -1, dim))
            if indices is not None:
                indices = dense(cupy, cupy.moveaxis(indices, -1, dim))
            return values, indices
        return scan_rows(cupy, launch, name, dense(cupy, x), spans)

    def number(x: Any, dtype: Any) -> Any:
        """``x`` in the dtype that is added; None where another kernel narrows the sums."""
        whole = x.dtype.kind in "biu"
        if dtype is None:
            return x.astype(np.int64, copy=False) if whole else x
        wanted = numpy_dtype(dtype)
        if wanted.name not in SCANNED or (not whole and wanted.kind == "i"):
            return None
        widens = whole or wanted == x.dtype or wanted.itemsize > x.dtype.itemsize
        return x.astype(wanted, copy=False) if widens else None

    def cumsum(self: Any, dim: int, dtype: Any) -> Any:
        x = number(self, dtype)
        found = None if x is None else run("cumsum", x, dim)
        return NotImplemented if found is None else found[0]

    def cumprod(self: Any, dim: int, dtype: Any) -> Any:
        spans = along(self.shape, dim)
        changes = dtype is not None and numpy_dtype(dtype) != self.dtype
        if spans is None or changes:
            return NotImplemented
        if spans[1] > (_ALONE if spans[2] == 1 else _SHORT) and spans[0] * spans[2] < _MANY:
            return NotImplemented
        found = run("cumprod", self, dim)
        return NotImplemented if found is None else found[0]

    def logcumsumexp(self: Any, dim: int) -> Any:
        found = run("logcumsumexp", self, dim) if self.dtype.name in FLOATS else None
        return NotImplemented if found is None else found[0]

    def extremum(name: str) -> Callable[[Any, int], Any]:
        def kernel(self: Any, dim: int) -> Any:
            fits = self.dtype.kind in "biu" and self.dtype.name != "uint64"
            found = run(name, self.astype(np.int64) if fits else self, dim)
            if found is None:
                return NotImplemented
            return found[0].astype(self.dtype, copy=False), found[1]

        return kernel

    return {
        "cumsum": cumsum,
        "cumprod": cumprod,
        "logcumsumexp": logcumsumexp,
        "cummax": extremum("cummax"),
        "cummin": extremum("cummin"),
    }
