"""Searching sorted sequences, and histograms of cells of equal width."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, INT64
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS"]

_SPLIT = 16384
_BLOCK = 128  # of loops.reduction.searching.cells
_LEAST = 64  # values, from which the loop pays
_places, _whole_places = (
    Loop("reduction.searching", name, _SPLIT) for name in ("places", "whole_places")
)
_cells = Loop("reduction.searching", "cells", 1 << 62)  # threads would need counts of their own
_FLOAT32 = np.dtype(np.float32)


def searchsorted(
    rows: Any, values: Any, out_int32: bool, right: bool, side: Any, sorter: Any
) -> Any:
    """Insertion points in a sequence, or in a row of sequences for each row of values."""
    if type(values) is not np.ndarray or sorter is not None or values.size < _LEAST:
        return NotImplemented
    dtype, shape = values.dtype, values.shape
    if rows.dtype != dtype or not (dtype in FLOATS or dtype == INT64):
        return NotImplemented
    if not (values.flags.c_contiguous and rows.flags.c_contiguous and rows.ndim):
        return NotImplemented
    if side not in (None, "left", "right") or (right and side == "left"):
        return NotImplemented
    several = rows.ndim > 1
    if several and rows.shape[:-1] != shape[:-1]:
        return NotImplemented
    size = values.size
    out = np.empty(shape, INT64)
    loop = _whole_places if dtype == INT64 else _places
    own = _FLOAT32 if dtype == INT64 else dtype
    per_row = shape[-1] if several else size
    after = bool(right or side == "right")
    loop(own, size, size, rows, rows.shape[-1], values, per_row, after, out)
    return out.astype(np.int32) if out_int32 else out


def histc(self: Any, bins: Any, low: Any, high: Any) -> Any:
    """Counts of ``bins`` cells between ``low`` and ``high``, or over the range of the elements."""
    if type(self) is not np.ndarray or self.dtype not in FLOATS or self.size < _LEAST:
        return NotImplemented
    if not self.flags.c_contiguous or type(bins) is not int or bins < 1:
        return NotImplemented
    if low == high:
        low, high = float(self.min()), float(self.max())
        if low == high:
            low, high = low - 1, high + 1
    if not (low < high and isfinite(low) and isfinite(high) and isfinite(high - low)):
        return NotImplemented  # the definition says what is wrong
    counts, cells = np.zeros(bins + 1, INT64), np.empty(_BLOCK, INT64)
    _cells(self.dtype, self.size, 1, self, float(low), float(high), bins, cells, counts)
    return counts[:bins].astype(self.dtype)


KERNELS: dict[str, Callable[..., Any]] = {"histc": histc, "searchsorted": searchsorted}
