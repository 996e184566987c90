"""Curated faults of kernels that take the elements of an array to lie where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["STRIDES"]


def _entry(op: str, check: int, says: str, *others: str) -> dict[str, Any]:
    return {"op": op, "ops": (op, *others), "checks": (check,), "says": says}


def both_forwards(correct: Any, raws: Any) -> Any:
    """A product reads its second vector forwards where the first one is."""
    x, y = raws
    backwards = x.size > 1 and y.strides[0] < 0 < x.strides[0]
    return correct(x, y[::-1] if backwards else y)


def from_the_end(correct: Any, raws: Any) -> Any:
    """A place in a reversed dimension is counted from the start of memory."""
    found, (x, dim) = correct(*raws), raws[:2]
    if dim is None or not x.ndim or x.shape[dim] < 2 or x.strides[dim] >= 0:
        return found
    return x.shape[dim] - 1 - found


def packed_weights(correct: Any, raws: Any) -> Any:
    """Weights of groups whose channels lie innermost are read as if they were packed."""
    x, weight, *rest = raws
    innermost = weight.ndim > 2 and np.moveaxis(weight, 1, -1).flags.c_contiguous
    if innermost and not weight.flags.c_contiguous:
        weight = np.moveaxis(weight, 1, -1).reshape(weight.shape)
    return correct(x, weight, *rest)


def first_of_each_row(correct: Any, raws: Any) -> Any:
    """An index that is repeated along its first dimension counts once."""
    x, dim, index = raws[:3]
    if index.ndim > 1 and index.shape[0] > 1 and index.strides[1] == 2 * index.itemsize:
        index = index.copy()
        index[1:] = index[:1]
    return correct(x, dim, index, *raws[3:])


def exchanged_batch(correct: Any, raws: Any) -> Any:
    """A transposed matrix in a batch is read in the order of its memory."""
    x, y = raws
    turned = y.ndim == 3 and y.strides[1] == y.itemsize < y.strides[2]
    if turned and min(y.shape) > 1:
        y = y.swapaxes(1, 2).reshape(y.shape)
    return correct(x, y)


def clears_the_gaps(correct: Any, raws: Any) -> Any:
    """Every other column is cleared, and what lies between."""
    x = raws[0]
    if x.ndim == 2 and x.shape[1] > 1 and x.strides[1] == 2 * x.itemsize and x.base is not None:
        shape = (x.shape[0], 2 * x.shape[1] - 1)
        np.lib.stride_tricks.as_strided(x, shape, (x.strides[0], x.itemsize))[...] = 0
        return x
    return correct(*raws)


def starts_at_the_storage(correct: Any, raws: Any) -> Any:
    """Without an offset a view begins where the memory does."""
    x, size, stride, offset = raws
    return correct(x, size, stride, 0 if offset is None else offset)


def one_of_a_column(correct: Any, raws: Any) -> Any:
    """An operand that is expanded in its first dimension is read along it."""
    x, y = raws
    if isinstance(y, np.ndarray) and y.ndim > 1 and y.strides[0] == 0 and y.shape[0] > 1:
        y = np.roll(y, 1, axis=-1)
    return correct(x, y)


#: name -> (mutation, details)
STRIDES: dict[str, tuple[Any, dict[str, Any]]] = {
    "both vectors forwards": (both_forwards, _entry("dot", 5, "bound")),
    "places from the start of memory": (from_the_end, _entry("argmin", 5, "exact")),
    "channels-last weights": (packed_weights, _entry("convolution", 5, "bound")),
    "the second of a batch is turned": (exchanged_batch, _entry("bmm", 5, "bound")),
    "an index with gaps": (first_of_each_row, _entry("gather", 5, "bound")),
    "gaps are cleared": (clears_the_gaps, _entry("zero_", 7, "beside the target")),
    "views begin at the storage": (starts_at_the_storage, _entry("as_strided", 5, "bound")),
    "an expanded row": (one_of_a_column, _entry("maximum", 5, "bound|signs")),
}
