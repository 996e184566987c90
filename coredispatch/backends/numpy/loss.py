"""Losses in NumPy: the softmax cross entropy and the mean squared error as single kernels.

The softmax is never stored: the forward kernel keeps only the sum of exponentials of each row,
and the backward kernel computes it anew from the logits.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch.backends.numpy.silence import silent
from coredispatch.backends.numpy.windows import Array, widen
from coredispatch.registry.model.errors import ChoiceError, DimError

_SMALL = 1024  # elements up to which a product with ones beats a ufunc reduction


@lru_cache(maxsize=64)
def _offsets(rows: int, columns: int) -> Any:
    """Flat position of the start of each row."""
    return np.arange(0, rows * columns, columns)


@lru_cache(maxsize=64)
def _rows(count: int) -> Any:
    return np.arange(count)


@lru_cache(maxsize=64)
def _ones(n: int, dtype: Any) -> Any:
    return np.ones(n, dtype)


def _row_sum(rows: Array) -> Array:
    if 0 < rows.size <= _SMALL:
        return rows.dot(_ones(rows.shape[1], rows.dtype))
    return np.add.reduce(rows, 1)


def _shifted(rows: Array) -> Array:
    """``rows`` less the maximum of each, so that no exponential overflows."""
    if not rows.shape[1]:  # which have no maximum
        return rows.copy()
    return rows - np.maximum.reduce(rows, 1, None, None, True)


def _is_plain(
    input: Array, target: Array, weight: Array | None, ignore_index: int, label_smoothing: float
) -> bool:
    """Whether this is the common case: a matrix of logits and a valid class for each row.

    Read as unsigned, a negative class is a huge one, so that one maximum checks both ends.
    """
    return (
        input.ndim == 2
        and weight is None
        and label_smoothing == 0.0
        and not 0 <= ignore_index < input.shape[1]
        and target.dtype.kind == "i"
        and 0 < target.size == input.shape[0]
        and target.ndim == 1
        and int(np.maximum.reduce(target.view(f"u{target.dtype.itemsize}"))) < input.shape[1]
    )


def _class_last(x: Array) -> Array:
    """``(N, C, *)`` (or ``(C,)``) as 2-d rows over the classes."""
    if x.ndim == 1:
        return x.reshape(1, -1)
    if x.ndim > 2:
        x = np.moveaxis(x, 1, -1)
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _class_first(rows: Array, shape: tuple[int, ...]) -> Array:
    """Inverse of :func:`_class_last`."""
    if len(shape) <= 2:
        return rows.reshape(shape)
    return np.ascontiguousarray(np.moveaxis(rows.reshape(shape[0], *shape[2:], shape[1]), -1, 1))


def _distribution(
    target: Array,
    shape: tuple[int, ...],
    dtype: Any,
    weight: Array | None,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[Array, Any]:
    """``q`` of shape ``(M, C)`` with ``loss_i = -sum_c q_ic log p_ic``, and the mean's divisor."""
    classes = shape[0] if len(shape) == 1 else shape[1]
    if not 0 <= label_smoothing <= 1 or weight is not None and weight.shape != (classes,):
        raise ValueError("options")  # the check of the operator says what is wrong
    if weight is not None:
        weight = weight.astype(dtype, copy=False)  # sums of half precision lose digits
    if target.shape == shape and target.dtype.kind not in "iubc":
        q = _class_last(target).astype(dtype)
        if label_smoothing:
            q *= 1 - label_smoothing
            q += label_smoothing / max(classes, 1)
        if weight is not None:
            q *= weight
        return q, q.shape[0] if classes else 0
    flat = target.reshape(-1)
    fitting = ((), (1,)) if len(shape) == 1 else ((shape[0], *shape[2:]),)
    if target.shape not in fitting:
        raise ValueError("target")  # the check of the operator says what is wrong
    if flat.shape[0] * classes != prod(shape) or target.dtype.kind not in "iu":
        raise ValueError(f"target {target.shape} {target.dtype} for logits {shape}")
    kept = flat != ignore_index
    index = np.where(kept, flat, 0)
    if index.size and not 0 <= index.min() <= index.max() < classes:
        bad = index.min() if index.min() < 0 else index.max()
        raise DimError(
            f"target {bad} is out of bounds for {classes} classes",
            fix=f"use classes 0 to {classes - 1}, or ignore_index",
        )
    rows = np.arange(flat.shape[0])
    q = np.zeros((flat.shape[0], classes), dtype)
    q[rows, index] = 1 - label_smoothing
    if label_smoothing:
        q += label_smoothing / max(classes, 1)
    if weight is None:
        q *= kept[:, None]
        return q, np.count_nonzero(kept)
    own = np.where(kept, weight[index], 0)
    if label_smoothing:  # the smoothed part of each class has that class's weight
        q[rows, index] -= 1 - label_smoothing
        q *= weight * kept[:, None]
        q[rows, index] += (1 - label_smoothing) * own
    else:
        q *= own[:, None]
    return q, np.add.reduce(own)


def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Array:
    """Kernel of ``cross_entropy``."""
    logits = widen(input)
    if _is_plain(input, target, weight, ignore_index, label_smoothing):
        z = _shifted(logits)
        picked = z.reshape(-1).take(target + _offsets(*z.shape))
        loss = np.log(_row_sum(np.exp(z, out=z)))
        loss -= picked
        divisor: Any = loss.shape[0]
        if reduction == "mean" and divisor <= _SMALL:
            mean = loss.dot(_ones(divisor, loss.dtype)) / loss.dtype.type(divisor)
            return np.asarray(mean, input.dtype)
    else:
        shape = input.shape
        q, divisor = _distribution(
            target, shape, logits.dtype, weight, ignore_index, label_smoothing
        )
        z = _shifted(_class_last(logits))
        z -= np.log(np.add.reduce(np.exp(z), 1, None, None, True))
        # 0 * -inf is 0 here: a class without weight does not count
        np.multiply(z, q, out=z, where=q != 0)
        np.copyto(z, 0, where=q == 0)
        loss = np.negative(np.add.reduce(z, 1))
        if reduction == "none":
            loss = loss.reshape(() if len(shape) == 1 else (shape[0], *shape[2:]))
    if reduction == "mean":
        loss = np.add.reduce(loss, None)
        loss = loss / loss.dtype.type(divisor)  # nothing left to average: NaN, as in PyTorch
    elif reduction == "sum":
        loss = np.add.reduce(loss, None)
    elif reduction != "none":
        raise ChoiceError.among("reduction", reduction, ("none", "mean", "sum"))
    return np.asarray(loss, input.dtype)


def cross_entropy_backward(
    grad: Array,
    input: Array,
    target: Array,
    weight: Array | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Array:
    """Kernel of ``cross_entropy_backward``: ``(softmax * sum(q) - q) * grad``."""
    logits = widen(input)
    if reduction != "none" and _is_plain(input, target, weight, ignore_index, label_smoothing):
        rows = logits.shape[0]
        scale = float(grad) / (rows if reduction == "mean" else 1)
        p = np.ascontiguousarray(_shifted(logits))  # reshape below must not copy
        np.exp(p, out=p)
        p *= (scale / _row_sum(p))[:, None]
        p[_rows(rows), target] -= p.dtype.type(scale)
        return p if logits is input else p.astype(input.dtype)
    shape = input.shape
    q, divisor = _distribution(target, shape, logits.dtype, weight, ignore_index, label_smoothing)
    p = _shifted(_class_last(logits))
    np.exp(p, out=p)
    total = np.add.reduce(q, 1)
    p *= (total / np.add.reduce(p, 1))[:, None]
    p -= q
    scale = widen(grad).reshape(-1, 1)
    if reduction == "mean":
        scale = scale / scale.dtype.type(divisor)
    p *= scale
    p[total == 0] = 0  # also where nothing counts and the scale is infinite
    return _class_first(p, shape).astype(input.dtype, copy=False)


def mse_loss(input: Array, target: Array, reduction: str) -> Array:
    """Kernel of ``mse_loss``."""
    difference = widen(input) - widen(target)
    if reduction == "none":
        return np.multiply(difference, difference).astype(input.dtype, copy=False)
    flat = difference.reshape(-1)
    total = flat.dot(flat) if flat.size <= _SMALL else np.add.reduce(np.multiply(flat, flat))
    if reduction == "mean":
        total = total / total.dtype.type(flat.size)
    elif reduction != "sum":
        raise ChoiceError.among("reduction", reduction, ("none", "mean", "sum"))
    return np.asarray(total, input.dtype)


KERNELS = {
    "cross_entropy": silent(cross_entropy),
    "cross_entropy_backward": silent(cross_entropy_backward),
    "mse_loss": silent(mse_loss),
}
