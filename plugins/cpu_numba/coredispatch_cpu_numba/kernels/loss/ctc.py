"""Connectionist temporal classification, sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DimError, ShapeError
from coredispatch_cpu_numba.arrays import FLOATS, INT64
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS"]

_SPLIT = 4096
_forward = Loop("loss.ctc", "ctc", _SPLIT)
_backward = Loop("loss.ctc", "ctc_backward", _SPLIT)


def _prepared(
    log_probs: np.ndarray, targets: np.ndarray, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[np.ndarray, tuple[Any, ...]]:
    """The log probabilities and what follows them as the loops take it."""
    x = np.ascontiguousarray(log_probs, None if log_probs.dtype in FLOATS else np.float32)
    total, batch, classes = x.shape
    integers = [np.ascontiguousarray(a, INT64) for a in (targets, input_lengths, target_lengths)]
    labels, steps, lengths = integers
    if labels.ndim == 1 and lengths.shape == (batch,):
        labels = integers[0] = _rows(labels, lengths, blank)
    if labels.ndim != 2 or len(labels) != batch:
        raise ValueError("ctc")  # the rule of the operator says what is wrong
    for name, given, most in (("input", steps, total), ("target", lengths, labels.shape[1])):
        if given.shape != (batch,) or (batch and (given.min() < 0 or given.max() > most)):
            raise DimError(
                f"{name}_lengths {given.tolist()} for {batch} samples of at most {most}",
                fix="give one length from 0 to the most per sample",
            )
    if not 0 <= blank < classes:
        raise DimError(f"blank {blank} is none of {classes} classes", fix="use a class")
    return x, (*integers, batch, classes, labels.shape[1], blank)


def _rows(labels: np.ndarray, lengths: np.ndarray, blank: int) -> np.ndarray:
    """Targets that stand one after the other as padded rows."""
    if len(lengths) and lengths.min() < 0 or lengths.sum() != len(labels):
        raise ValueError("ctc")
    rows = np.full((len(lengths), lengths.max(initial=0)), blank, INT64)
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = labels
    return rows


def _check(bad: np.ndarray, classes: int) -> None:
    if bad[0]:
        raise DimError(
            f"a target is out of bounds for {classes} classes",
            fix=f"use labels from 0 to {classes - 1}",
        )


def ctc_nll(
    log_probs: np.ndarray, targets: np.ndarray, input_lengths: Any, target_lengths: Any, blank: int
) -> np.ndarray:
    """The negative log likelihood of each target."""
    x, rest = _prepared(log_probs, targets, input_lengths, target_lengths, blank)
    own, batch, width = x.dtype, x.shape[1], 2 * rest[0].shape[1] + 1
    out, bad = np.empty(batch, own), np.zeros(1, INT64)
    if batch:
        alpha = np.empty(2 * batch * width, own)
        each = max(1, x.shape[0] * width)
        _forward(own, batch * each, batch, x, *rest, alpha, width, out, bad, weight=each)
    _check(bad, x.shape[2])
    return out.astype(log_probs.dtype, copy=False)


def ctc_nll_backward(
    grad: np.ndarray,
    log_probs: np.ndarray,
    targets: np.ndarray,
    input_lengths: Any,
    target_lengths: Any,
    blank: int,
) -> np.ndarray:
    """The gradient, as of the ``log_softmax`` that made ``log_probs``."""
    x, rest = _prepared(log_probs, targets, input_lengths, target_lengths, blank)
    own, (total, batch, _), width = x.dtype, x.shape, 2 * rest[0].shape[1] + 1
    if grad.shape != (batch,):
        raise ShapeError(
            f"a gradient of shape {grad.shape} for {batch} samples", fix="give one number a sample"
        )
    out, bad = np.zeros(x.shape, own), np.zeros(1, INT64)
    if x.size:
        alpha, beta = np.empty(total * batch * width, own), np.empty(2 * batch * width, own)
        each, arriving = max(1, total * width), np.ascontiguousarray(grad, own)
        arguments = (arriving, x, *rest, alpha, total, beta, width, out, bad)
        _backward(own, batch * each, batch, *arguments, weight=each)
    _check(bad, x.shape[2])
    return out.astype(log_probs.dtype, copy=False)


KERNELS: dict[str, Callable[..., Any]] = {
    "ctc_nll": ctc_nll,
    "ctc_nll_backward": ctc_nll_backward,
}
