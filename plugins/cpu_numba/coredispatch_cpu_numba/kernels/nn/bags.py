"""Embeddings of bags of int64 indices, each bag added up, averaged or maximized in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import INT64, is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.indexing.indices import is_index, spare, spared

__all__ = ["KERNELS", "LEAST"]

_SPLIT = 16384
_HOW = {"sum": 0, "mean": 1, "max": 2}
_WEIGHTED = 3
_bags = Loop("nn.bags", "bags", _SPLIT)
_NO_STARTS = np.zeros(0, INT64)


def embedding_bag(
    input: np.ndarray,
    weight: np.ndarray,
    offsets: np.ndarray | None,
    mode: str,
    per_sample_weights: np.ndarray | None,
    padding_idx: int | None,
    sparse: bool,
) -> Any:
    """One row for each bag; zeros for an empty one."""
    if sparse or not is_dense(weight, 1) or weight.ndim != 2 or not is_index(input):
        return NotImplemented
    n, width = weight.shape
    if input.ndim == 2 and offsets is None:
        bags, length = input.shape
        starts = _NO_STARTS
    elif input.ndim == 1 and offsets is not None and is_index(offsets) and offsets.ndim == 1:
        bags, length, starts = len(offsets), -1, offsets
    else:
        return NotImplemented
    if not bags:
        return NotImplemented
    padding = -1
    if padding_idx is not None:
        if not -n <= padding_idx < n:
            return NotImplemented
        padding = padding_idx % n
    how, shares = _HOW.get(mode), weight
    if how is None:
        return NotImplemented
    if per_sample_weights is not None:
        if how or per_sample_weights.shape != input.shape:
            return NotImplemented
        if not is_dense(per_sample_weights, 1) or per_sample_weights.dtype != weight.dtype:
            return NotImplemented
        how, shares = _WEIGHTED, per_sample_weights
    out, bad = np.empty((bags, width), weight.dtype), spared()
    work = input.size * width
    arguments = (weight, input, starts, shares, n, width, length, how, padding, out, bad)
    _bags(weight.dtype, work, bags, *arguments, weight=max(1, work // bags))
    if bad[0]:
        return NotImplemented
    spare(bad)
    return out


KERNELS: dict[str, Callable[..., Any]] = {"embedding_bag": embedding_bag}
LEAST: dict[str, int] = {"embedding_bag": 1}
