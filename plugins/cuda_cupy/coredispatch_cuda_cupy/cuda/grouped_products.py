"""Products of groups of matrices, by kernels that read where groups end."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from coredispatch.plugin import DType, dtypes, numpy_dtype
from coredispatch_cuda_cupy.cuda.eight_bits import KINDS, plain
from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS, dense
from coredispatch_cuda_cupy.cuda.loading import Family, is_float

__all__ = ["WRITTEN", "kernels"]

#: dtypes that results have
WRITTEN = ("float32", "float16", "bfloat16")
#: as in groups.cu: which dimension the groups divide, rows and columns of a tile, threads
_EVEN, _ROWS, _COLUMNS, _INNER = range(4)
_SIDE, _THREADS = 64, 128
_OLDEST = 8  # the major number of the capability that has products of bfloat16


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels, by operator."""
    launch, launch_floats = Family(cupy, "grouped"), Family(cupy, "grouped_floats")

    @cache
    def capable(device: int) -> bool:
        return int(cupy.cuda.runtime.getDeviceProperties(device)["major"]) >= _OLDEST

    def _scaled_grouped_mm(
        self: Any, mat2: Any, scale_a: Any, scale_b: Any, offs: Any, bias: Any, scale_result: Any,
        out_dtype: DType | None, use_fast_accum: bool,
    ) -> Any:  # fmt: skip
        wanted = dtypes.bfloat16 if out_dtype is None else out_dtype
        fits = bias is None and scale_result is None and wanted.name in WRITTEN
        if not fits or not capable(int(cupy.cuda.runtime.getDevice())):
            return NotImplemented
        divided = _divided(self, mat2, scale_a, scale_b, offs)
        if divided is None:
            return NotImplemented
        groups = int(self.shape[0] if offs is None else offs.size)
        (rows, depth), columns = self.shape[-2:], mat2.shape[-1]
        one = divided in (_ROWS, _COLUMNS)
        shape = (rows, columns) if one else (groups, rows, columns)
        native = numpy_dtype(wanted)
        out = cupy.empty(shape, native)
        tiles = _tiles(divided, groups, rows, columns)
        arrays = (
            dense(cupy, plain(self)),
            dense(cupy, plain(mat2).swapaxes(-1, -2)),
            dense(cupy, scale_a),
            dense(cupy, scale_b),
            0 if offs is None else dense(cupy, offs.astype(np.int64, copy=False)),
            out,
        )
        sizes = (divided, groups, rows, columns, depth, tiles)
        kinds = (KINDS[self.dtype], KINDS[mat2.dtype])
        launch(
            "grouped_product", native, min(tiles, MOST_BLOCKS), _THREADS, (*arrays, *sizes, *kinds)
        )
        return out

    def grouped_products(self: Any, mat2: Any, offs: Any) -> Any:
        divided = _divided_floats(self, mat2, offs)
        if divided is None:
            return NotImplemented
        if self.itemsize == 2 and not capable(int(cupy.cuda.runtime.getDevice())):
            return NotImplemented
        (rows, depth), columns, groups = self.shape[-2:], mat2.shape[-1], int(offs.size)
        shape = (groups, rows, columns) if divided == _INNER else (rows, columns)
        if not (self.size and mat2.size and offs.size):
            return cupy.zeros(shape, self.dtype)
        out, tiles = cupy.empty(shape, self.dtype), _tiles(divided, groups, rows, columns)
        arrays = self, mat2, dense(cupy, offs.astype(np.int64, copy=False)), out
        sizes = divided, groups, rows, columns, depth, tiles
        strides = [s // x.itemsize for x in (self, mat2.swapaxes(-1, -2)) for s in _strides(x)]
        arguments = (*arrays, *sizes, *strides)
        launch_floats("grouped_floats", self.dtype, min(tiles, MOST_BLOCKS), _THREADS, arguments)
        return out

    return {"_scaled_grouped_mm": _scaled_grouped_mm, "grouped_products": grouped_products}


def _strides(x: Any) -> tuple[int, ...]:
    """In bytes: to the next group, row, and element of it; 0 where all groups have one matrix."""
    strides = tuple(x.strides)
    return strides if x.ndim == 3 else (0, *strides)


def _tiles(divided: int, groups: int, rows: int, columns: int) -> int:
    """How many tiles there may be: where groups end is not known here."""
    down, along = -(-rows // _SIDE), -(-columns // _SIDE)
    if divided in (_ROWS, _COLUMNS):
        # Each group, and what is behind the last one, may have a tile that is not full.
        length, beside = (down, along) if divided == _ROWS else (along, down)
        return (length + groups + 1) * beside
    return groups * down * along


def _divided_floats(a: Any, b: Any, offs: Any) -> int | None:
    """Which dimension the groups divide; None for what the operator refuses, or is no float."""
    if a.dtype != b.dtype or not is_float(a.dtype) or a.shape[-1:] != b.shape[-2:-1]:
        return None
    if offs.ndim != 1 or offs.dtype.name not in ("int32", "int64"):
        return None
    if any(x.ndim == 3 and x.shape[0] != offs.size for x in (a, b)):
        return None
    return {(2, 3): _ROWS, (3, 2): _COLUMNS, (2, 2): _INNER}.get((a.ndim, b.ndim))


def _divided(a: Any, b: Any, scale_a: Any, scale_b: Any, offs: Any) -> int | None:
    """Which dimension the groups divide; None for what the operator refuses, or has no elements."""
    if a.dtype not in KINDS or b.dtype not in KINDS or not {a.ndim, b.ndim} <= {2, 3}:
        return None
    if a.shape[-1] != b.shape[-2] or not a.size or not b.size:
        return None
    if (offs is None) != (a.ndim == b.ndim == 3):
        return None
    if offs is not None and (offs.ndim != 1 or offs.dtype.kind != "i" or not offs.size):
        return None
    groups = a.shape[0] if offs is None else offs.size
    if any(x.ndim == 3 and x.shape[0] != groups for x in (a, b)):
        return None
    flat = a.ndim == 2, b.ndim == 2
    lead: list[tuple[int, ...]] = [() if one else (groups,) for one in flat]
    shapes = [(*lead[0], a.shape[-2]), (*lead[1], b.shape[-1])]
    if all(flat):
        shapes = [(groups * prod(shape),) for shape in shapes]
    scales = (scale_a, scale_b)
    if any(s.dtype != np.float32 or s.shape != n for s, n in zip(scales, shapes, strict=True)):
        return None
    return {(False, False): _EVEN, (True, False): _ROWS, (False, True): _COLUMNS}.get(flat, _INNER)
