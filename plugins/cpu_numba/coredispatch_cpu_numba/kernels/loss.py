"""Cross entropy of a matrix of logits against one class per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DimError
from coredispatch_cpu_numba.arrays import INT64, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "WHEN"]

_LEAST = 1024
_SPLIT = 24576
_forward = Loop("loss", "cross_entropy", _SPLIT)
_fold = Loop("loss", "fold", _SPLIT)
_backward = Loop("loss", "cross_entropy_backward", _SPLIT)


def _check(bad: np.ndarray, target: np.ndarray, classes: int, ignored: int) -> None:
    if bad[0]:
        outside = target[((target < 0) | (target >= classes)) & (target != ignored)]
        raise DimError(
            f"target {int(outside[0])} is out of bounds for {classes} classes",
            fix=f"use class indices from 0 to {classes - 1}, or ignore_index ({ignored})",
        )


def _kept(target: np.ndarray, ignored: int) -> int:
    return int(np.count_nonzero(target != ignored))


def cross_entropy(
    input: np.ndarray,
    target: np.ndarray,
    weight: Any,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> np.ndarray:
    """``log sum exp(row) - row[target]`` of each row, or their mean or sum."""
    rows, classes = input.shape
    own = input.dtype
    losses, bad = np.empty(rows, own), np.zeros(1, INT64)
    arguments = (input, target, classes, ignore_index, losses, bad)
    _forward(own, input.size, rows, *arguments, weight=classes)
    _check(bad, target, classes, ignore_index)
    if reduction == "none":
        return losses
    total = np.empty((), own)
    _fold(own, rows, 1, losses, target, ignore_index, int(reduction == "mean"), total)
    return total


def cross_entropy_backward(
    grad: np.ndarray,
    input: np.ndarray,
    target: np.ndarray,
    weight: Any,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> np.ndarray:
    """``(softmax(row) - onehot(target)) * grad`` of each row, ``grad`` divided for a mean."""
    rows, classes = input.shape
    own = input.dtype
    if reduction == "none":
        scale = np.ascontiguousarray(grad, own)
    else:
        kept = _kept(target, ignore_index) if reduction == "mean" else 1
        scale = np.full(rows, float(grad) / kept if kept else np.nan, own)
    out, bad = np.empty(input.shape, own), np.zeros(1, INT64)
    arguments = (scale, input, target, classes, ignore_index, out, bad)
    _backward(own, input.size, rows, *arguments, weight=classes)
    _check(bad, target, classes, ignore_index)
    return out


def _accepts(
    input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float
) -> bool:
    return (
        weight is None
        and is_dense(input, _LEAST)
        and input.ndim == 2
        and label_smoothing == 0.0
        and target.dtype == INT64
        and target.shape == input.shape[:1]
        and bool(target.flags.c_contiguous)
        and reduction in ("mean", "sum", "none")
    )


def _accepts_backward(grad: Any, input: Any, target: Any, *options: Any) -> bool:
    if not _accepts(input, target, *options) or grad.dtype != input.dtype:
        return False
    reduction = options[2]
    return grad.shape == (target.shape if reduction == "none" else ())


KERNELS: dict[str, Callable[..., Any]] = {
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
}
WHEN: dict[str, Callable[..., bool]] = {
    "cross_entropy": _accepts,
    "cross_entropy_backward": _accepts_backward,
}
