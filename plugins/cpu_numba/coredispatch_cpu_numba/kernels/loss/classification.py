"""Cross entropy of logits ``(N, C, *)`` against one class for each row or position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DimError
from coredispatch_cpu_numba.arrays import INT64, is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import COLUMNS

__all__ = ["KERNELS", "WHEN"]

_LEAST = 1024
_SPLIT = 24576
_forward = Loop("loss.classification", "cross_entropy", _SPLIT)
_fold = Loop("loss.classification", "fold", _SPLIT)
_backward = Loop("loss.classification", "cross_entropy_backward", _SPLIT)
_positions = Loop("loss.classification", "positions", _SPLIT)
_positions_backward = Loop("loss.classification", "positions_backward", _SPLIT)


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
    own, (rows, classes) = input.dtype, input.shape[:2]
    if input.ndim > 2:
        return _of_positions(input, target, ignore_index, reduction)
    losses, bad = np.empty(rows, own), np.zeros(1, INT64)
    arguments = (input, target, classes, ignore_index, losses, bad)
    _forward(own, input.size, rows, *arguments, weight=classes)
    _check(bad, target, classes, ignore_index)
    return _reduced(losses, target, ignore_index, reduction)


def _reduced(losses: np.ndarray, target: np.ndarray, ignored: int, reduction: str) -> np.ndarray:
    if reduction == "none":
        return losses
    total = np.empty((), losses.dtype)
    _fold(losses.dtype, losses.size, 1, losses, target, ignored, int(reduction == "mean"), total)
    return total


def _of_positions(
    input: np.ndarray, target: np.ndarray, ignored: int, reduction: str
) -> np.ndarray:
    """Losses where classes are the second of more than two dimensions."""
    losses = np.empty(target.shape, input.dtype)
    _over_tiles(_positions, (input, target), ignored, losses)
    return _reduced(losses, target, ignored, reduction)


def _over_tiles(loop: Loop, arrays: Any, ignored: int, out: np.ndarray) -> None:
    """Run ``loop`` over tiles of positions; raises DimError for a target out of bounds."""
    input, target = arrays[-2:]
    images, classes = input.shape[:2]
    inner, bad = target.size // images, np.zeros(1, INT64)
    tiles = (inner + COLUMNS - 1) // COLUMNS
    arguments = (*arrays, classes, inner, tiles, ignored, out, bad)
    loop(input.dtype, input.size, images * tiles, *arguments, weight=classes * COLUMNS)
    _check(bad, target, classes, ignored)


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
    own, (rows, classes) = input.dtype, input.shape[:2]
    if reduction == "none":
        scale = np.ascontiguousarray(grad, own)
    else:
        kept = _kept(target, ignore_index) if reduction == "mean" else 1
        scale = np.full(target.shape, float(grad) / kept if kept else np.nan, own)
    if input.ndim > 2:
        result = np.empty(input.shape, own)
        _over_tiles(_positions_backward, (scale, input, target), ignore_index, result)
        return result
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
        and input.ndim >= 2
        and label_smoothing == 0.0
        and target.dtype == INT64
        and target.shape == (*input.shape[:1], *input.shape[2:])
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
