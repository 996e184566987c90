"""Losses of equal arrays of numbers, without the differences in memory."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import is_dense, is_like
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import BLOCK

__all__ = ["KERNELS", "LEAST", "WHEN"]

_LEAST = 256
_SPLIT = 65536
_LOOPS = {
    name: (
        Loop("loss.regression", name, _SPLIT),
        Loop("loss.regression", f"{name}_sums", _SPLIT),
    )
    for name in ("absolute", "divergence", "huber", "log_divergence", "logits", "squared")
}


def _loss(name: str, x: np.ndarray, y: np.ndarray, reduction: str, *numbers: float) -> np.ndarray:
    each, summed = _LOOPS[name]
    size, own = x.size, x.dtype
    given = numbers or (0.0, 0.0, 0.0)
    if reduction == "none":
        out = np.empty(x.shape, own)
        each(own, size, size, x, y, *given, out)
        return out
    blocks = -(-size // BLOCK)
    sums = np.empty(blocks)
    summed(own, size, blocks, x, y, *given, sums, weight=BLOCK)
    total = float(sums[0]) if blocks == 1 else float(np.add.reduce(sums))
    over = {"sum": 1, "mean": size, "batchmean": len(x)}
    return np.array(total / over[reduction], own)


def mse_loss(input: np.ndarray, target: np.ndarray, reduction: str) -> np.ndarray:
    """``(input - target)^2``"""
    return _loss("squared", input, target, reduction)


def l1_loss(input: np.ndarray, target: np.ndarray, reduction: str) -> np.ndarray:
    """``|input - target|``"""
    return _loss("absolute", input, target, reduction)


def smooth_l1_loss(input: np.ndarray, target: np.ndarray, reduction: str, beta: Any) -> Any:
    """``d^2 / (2 * beta)`` where ``d = |input - target|`` is below ``beta``, else a line."""
    if not beta > 0:
        return NotImplemented
    return _loss("huber", input, target, reduction, float(beta), 0.5 / beta, 1.0)


def huber_loss(input: np.ndarray, target: np.ndarray, reduction: str, delta: Any) -> Any:
    """``d^2 / 2`` where ``d = |input - target|`` is below ``delta``, else a line."""
    if not 0 < delta < inf:
        return NotImplemented
    return _loss("huber", input, target, reduction, float(delta), 0.5, float(delta))


def binary_cross_entropy_with_logits(
    input: np.ndarray, target: np.ndarray, weight: Any, reduction: str, pos_weight: Any
) -> np.ndarray:
    """``(1 - target) * input + log(1 + exp(-input))``"""
    return _loss("logits", input, target, reduction)


def kl_div(input: np.ndarray, target: np.ndarray, reduction: str, log_target: bool) -> np.ndarray:
    """``target * (log(target) - input)``, or with ``exp(target)`` for ``target``."""
    return _loss("log_divergence" if log_target else "divergence", input, target, reduction)


def _unweighted(input: Any, target: Any, weight: Any, reduction: Any, pos_weight: Any) -> bool:
    return weight is None and pos_weight is None and _accepts(input, target, reduction)


def _divergence(input: Any, target: Any, reduction: Any, log_target: Any) -> bool:
    known = "sum" if reduction == "batchmean" else reduction
    return type(log_target) is bool and _accepts(input, target, known)


def _accepts(input: Any, target: Any, reduction: Any, *options: Any) -> bool:
    return (
        is_dense(input, _LEAST)
        and is_like(target, input)
        and reduction in ("mean", "sum", "none")
        and all(type(n) in (int, float) for n in options)
    )


KERNELS: dict[str, Callable[..., Any]] = {
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "huber_loss": huber_loss,
    "kl_div": kl_div,
    "l1_loss": l1_loss,
    "mse_loss": mse_loss,
    "smooth_l1_loss": smooth_l1_loss,
}
WHEN: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(KERNELS, _accepts),
    "binary_cross_entropy_with_logits": _unweighted,
    "kl_div": _divergence,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
