"""Cross entropy of logits ``(N, C, *)`` against one class for each row or position.

Of rows also against probabilities of classes. What is given as logarithms is picked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DimError
from coredispatch_cpu_numba.arrays import FLOATS, INT64, constant, is_dense, is_like
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import COLUMNS

__all__ = ["KERNELS", "WHEN"]

_LEAST = 1024
_SPLIT = 24576
_forward = Loop("loss.classification", "cross_entropy", _SPLIT)
_fold = Loop("loss.classification", "fold", _SPLIT)
_backward = Loop("loss.classification", "cross_entropy_backward", _SPLIT)
_weighted = Loop("loss.classification", "weighted", _SPLIT)
_weighted_backward = Loop("loss.classification", "weighted_backward", _SPLIT)
_weighted_fold = Loop("loss.classification", "weighted_fold", _SPLIT)
_weighted_positions = Loop("loss.classification", "weighted_positions", _SPLIT)
_weighted_positions_backward = Loop("loss.classification", "weighted_positions_backward", _SPLIT)
_shares = Loop("loss.classification", "shares", _SPLIT)
_shares_backward = Loop("loss.classification", "shares_backward", _SPLIT)
_nll = Loop("loss.classification", "nll", _SPLIT)
_nll_total = Loop("loss.classification", "nll_total", _SPLIT)
_nll_backward = Loop("loss.classification", "nll_backward", _SPLIT)
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
    if target.dtype != INT64:
        return _of_shares(input, target, weight, reduction, label_smoothing)
    if weight is not None or label_smoothing:
        return _of_weights(input, target, weight, ignore_index, reduction, label_smoothing)
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
    if target.dtype != INT64:
        return _of_shares_backward(grad, input, target, weight, reduction, label_smoothing)
    if weight is not None or label_smoothing:
        options = ignore_index, reduction, label_smoothing
        return _of_weights_backward(grad, input, target, weight, *options)
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


# ---- weights of classes, and shares that go to all of them ------------------------------------


def _parts(weight: Any, classes: int, smoothing: float, own: Any) -> tuple[Any, float, float]:
    """The weights of the classes, and what of a target goes to its class and to each."""
    weights = constant(classes, own, 1.0) if weight is None else weight
    return weights, 1.0 - smoothing, smoothing / classes


def _kept_weight(weights: np.ndarray, target: np.ndarray, ignored: int) -> float:
    """The weights of all targets that count; of one out of bounds, which the loop finds, any."""
    return float(np.sum(weights.take(target, mode="clip"), where=target != ignored, dtype=float))


def _run_weighted(
    loops: tuple[Loop, Loop], arrays: Any, options: Any, ignored: int, out: np.ndarray
) -> None:
    """The first loop for rows, the second for positions; DimError for a target out of bounds."""
    input, target = arrays[-2:]
    images, classes = input.shape[:2]
    weights, given, even = options
    whole = float(weights.sum(dtype=float)) if even else 0.0  # of use for even shares only
    shares = given, even, whole, out
    bad = np.zeros(1, INT64)
    if input.ndim == 2:
        rest = classes, ignored, *shares, bad
        loops[0](input.dtype, input.size, images, *arrays, weights, *rest, weight=classes)
    else:
        inner = target.size // images
        tiles = (inner + COLUMNS - 1) // COLUMNS
        rest = classes, inner, tiles, ignored, *shares, bad
        weight = classes * COLUMNS
        loops[1](input.dtype, input.size, images * tiles, *arrays, weights, *rest, weight=weight)
    _check(bad, target, classes, ignored)


def _of_weights(
    input: np.ndarray, target: np.ndarray, weight: Any, ignored: int, reduction: str, smooth: float
) -> np.ndarray:
    own = input.dtype
    options = _parts(weight, input.shape[1], smooth, own)
    losses = np.empty(target.shape, own)
    loops = _weighted, _weighted_positions
    _run_weighted(loops, (input, target), options, ignored, losses)
    return _reduced_by_weight(losses, target, options[0], ignored, reduction)


def _reduced_by_weight(
    losses: np.ndarray, target: np.ndarray, weights: np.ndarray, ignored: int, reduction: str
) -> np.ndarray:
    if reduction == "none":
        return losses
    own, size, total = losses.dtype, losses.size, np.empty((), losses.dtype)
    arguments = losses, target, weights, ignored, int(reduction == "mean"), total
    _weighted_fold(own, size, 1, *arguments)
    return total


def _scale(grad: np.ndarray, shape: Any, reduction: str, divisor: float, own: Any) -> np.ndarray:
    """What arrives for each loss."""
    if reduction == "none":
        return np.ascontiguousarray(grad, own)
    return np.full(shape, float(grad) / divisor if divisor else np.nan, own)


def _of_weights_backward(
    grad: np.ndarray,
    input: np.ndarray,
    target: np.ndarray,
    weight: Any,
    ignored: int,
    reduction: str,
    smooth: float,
) -> np.ndarray:
    own = input.dtype
    options = _parts(weight, input.shape[1], smooth, own)
    divisor = _kept_weight(options[0], target, ignored) if reduction == "mean" else 1.0
    scale, out = _scale(grad, target.shape, reduction, divisor, own), np.empty(input.shape, own)
    loops = _weighted_backward, _weighted_positions_backward
    _run_weighted(loops, (scale, input, target), options, ignored, out)
    return out


# ---- probabilities of classes -----------------------------------------------------------------


def _of_shares(
    input: np.ndarray, target: np.ndarray, weight: Any, reduction: str, smooth: float
) -> np.ndarray:
    own, (rows, classes) = input.dtype, input.shape
    weights, *shares = _parts(weight, classes, smooth, own)
    losses = np.empty(rows, own)
    arguments = input, target, weights, classes, *shares, losses
    _shares(own, input.size, rows, *arguments, weight=classes)
    if reduction == "none":
        return losses
    total = np.add.reduce(losses, dtype=np.float64)
    return np.asarray(total / rows if reduction == "mean" else total, own)


def _of_shares_backward(
    grad: np.ndarray,
    input: np.ndarray,
    target: np.ndarray,
    weight: Any,
    reduction: str,
    smooth: float,
) -> np.ndarray:
    own, (rows, classes) = input.dtype, input.shape
    weights, *shares = _parts(weight, classes, smooth, own)
    scale = _scale(grad, rows, reduction, rows if reduction == "mean" else 1, own)
    out = np.empty(input.shape, own)
    arguments = scale, input, target, weights, classes, *shares, out
    _shares_backward(own, input.size, rows, *arguments, weight=classes)
    return out


# ---- logarithms that are given ----------------------------------------------------------------


def _images(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many images, and classes: a vector of logarithms is one image."""
    return (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])


def nll_loss(
    input: np.ndarray, target: np.ndarray, weight: Any, ignore_index: int, reduction: str
) -> np.ndarray:
    """``-weight[target] input[target]`` of each position, or their mean or sum."""
    own, (images, classes) = input.dtype, _images(input.shape)
    weights = constant(classes, own, 1.0) if weight is None else weight
    size, bad = target.size, np.zeros(1, INT64)
    arguments = input, target, weights, classes, size // images, ignore_index
    if reduction == "none":
        out = np.empty(target.shape, own)
        _nll(own, size, images, *arguments, out, bad, weight=size // images)
    else:
        out = np.empty((), own)
        _nll_total(own, size, 1, *arguments, int(reduction == "mean"), out, bad)
    _check(bad, target, classes, ignore_index)
    return out


def nll_loss_backward(
    grad: np.ndarray,
    input_shape: Any,
    target: np.ndarray,
    weight: Any,
    ignore_index: int,
    reduction: str,
) -> np.ndarray:
    """Zeros but for the elements of the targets."""
    own, shape = grad.dtype, tuple(input_shape)
    images, classes = _images(shape)
    weights = constant(classes, own, 1.0) if weight is None else weight
    divisor = _kept_weight(weights, target, ignore_index) if reduction == "mean" else 1.0
    scale = _scale(grad, target.shape, reduction, divisor, own)
    out, bad = np.zeros(shape, own), np.zeros(1, INT64)
    size, inner = target.size, target.size // images
    arguments = scale, target, weights, classes, inner, ignore_index, out, bad
    _nll_backward(own, size, images, *arguments, weight=inner)
    _check(bad, target, classes, ignore_index)
    return out


def _is_of_classes(weight: Any, classes: int, own: Any) -> bool:
    return weight is None or (
        weight.shape == (classes,) and weight.dtype == own and bool(weight.flags.c_contiguous)
    )


def _are_classes(target: Any, shape: tuple[int, ...]) -> bool:
    return (
        target.dtype == INT64
        and target.shape == ((*shape[:1], *shape[2:]) if len(shape) > 1 else ())
        and target.size > 0
        and bool(target.flags.c_contiguous)
    )


_REDUCTIONS = ("mean", "sum", "none")


def _accepts_nll(input: Any, target: Any, weight: Any, ignore_index: Any, reduction: Any) -> bool:
    return (
        is_dense(input, 1)
        and input.ndim >= 1
        and _are_classes(target, input.shape)
        and _is_of_classes(weight, _images(input.shape)[1], input.dtype)
        and reduction in _REDUCTIONS
    )


def _accepts_nll_backward(
    grad: Any, input_shape: Any, target: Any, weight: Any, ignore_index: Any, reduction: Any
) -> bool:
    shape = tuple(input_shape)
    return (
        grad.dtype in FLOATS
        and len(shape) >= 1
        and _are_classes(target, shape)
        and _is_of_classes(weight, _images(shape)[1], grad.dtype)
        and reduction in _REDUCTIONS
        and grad.shape == (target.shape if reduction == "none" else ())
    )


def _accepts(
    input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float
) -> bool:
    if not (is_dense(input, 1) and input.ndim >= 2 and reduction in _REDUCTIONS):
        return False
    if not (0 <= label_smoothing <= 1 and _is_of_classes(weight, input.shape[1], input.dtype)):
        return False
    if _are_classes(target, input.shape):
        return input.size >= _LEAST or weight is not None or label_smoothing > 0
    return input.ndim == 2 and is_like(target, input)


def _accepts_backward(grad: Any, input: Any, target: Any, *options: Any) -> bool:
    if not _accepts(input, target, *options) or grad.dtype != input.dtype:
        return False
    reduction = options[2]
    return grad.shape == ((*input.shape[:1], *input.shape[2:]) if reduction == "none" else ())


KERNELS: dict[str, Callable[..., Any]] = {
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "nll_loss": nll_loss,
    "nll_loss_backward": nll_loss_backward,
}
WHEN: dict[str, Callable[..., bool]] = {
    "cross_entropy": _accepts,
    "cross_entropy_backward": _accepts_backward,
    "nll_loss": _accepts_nll,
    "nll_loss_backward": _accepts_nll_backward,
}
