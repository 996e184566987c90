"""Embedding in NumPy: rows taken by index, and their gradients summed by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.backends.numpy.windows import Array, widen
from coredispatch.registry.model.errors import DimError

# Up to this many gradient elements ``np.add.at`` beats sorting (2 us against 8 us at 64).
_SMALL = 2048


def _check(indices: Array, rows: int) -> None:
    """``take`` would count negative indices from the end; as unsigned they are out of range."""
    if indices.dtype.kind != "i":
        raise TypeError(f"indices must be int32 or int64, got {indices.dtype}")
    unsigned: Any = indices.view(f"u{indices.dtype.itemsize}")
    if indices.size and int(np.maximum.reduce(unsigned, None)) >= rows:
        low, high = int(indices.min()), int(indices.max())
        raise DimError(
            f"index {low if low < 0 else high} is out of range for {rows} embeddings",
            fix=f"use indices from 0 to {rows - 1}",
        )


def embedding_lookup(
    input: Array, weight: Array, padding_idx: int | None, scale_grad_by_freq: bool, sparse: bool
) -> Array:
    """Kernel of ``embedding_lookup``."""
    if weight.ndim != 2:
        raise ValueError("embedding")  # the rule of the operator says what is wrong
    _check(input, weight.shape[0])
    return weight.take(input, 0)


def embedding_backward(
    grad: Array,
    indices: Array,
    num_weights: int,
    padding_idx: int | None,
    scale_grad_by_freq: bool,
) -> Array:
    """Kernel of ``embedding_backward``: rows of equal index are sorted together and summed."""
    width = grad.shape[-1]
    rows = widen(grad).reshape(indices.size, width)
    index = indices.reshape(-1)
    result = np.zeros((num_weights, width), rows.dtype)
    if rows.size <= _SMALL:
        np.add.at(result, index, rows)
    else:
        order = np.argsort(index, kind="stable")
        ordered = index[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        result[ordered[starts]] = np.add.reduceat(rows[order], starts, 0)
    if scale_grad_by_freq:
        counts = np.bincount(index, minlength=num_weights)[:, None]
        np.divide(result, counts, out=result, where=counts > 0)
    if padding_idx is not None:
        result[padding_idx] = 0
    return result.astype(grad.dtype, copy=False)


KERNELS = {"embedding_lookup": embedding_lookup, "embedding_backward": embedding_backward}
