"""NumPy reference and samples of the backward operator of cross entropy, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.loss.reference import REDUCTIONS
from coredispatch.ops.support.samples import Sample


def cross_entropy_backward_reference(
    grad_output: Any,
    input: Any,
    target: Any,
    weight: Any,
    ignore_index: Any,
    reduction: Any,
    label_smoothing: Any,
) -> Any:
    """``softmax * sum(q) - q``, row by row."""
    dim = 0 if input.ndim == 1 else 1
    classes = input.shape[dim]
    x = np.moveaxis(input, dim, -1)
    p = np.exp(x - x.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    w = np.ones(classes) if weight is None else weight
    if target.dtype.kind == "f":
        q = np.moveaxis(target, dim, -1) * (1 - label_smoothing) + label_smoothing / max(classes, 1)
        q, divisor = q * w, q.size // max(classes, 1)
    else:
        kept = (target != ignore_index)[..., None]
        index = np.where(kept[..., 0], target, 0)
        own = (w[index] * kept[..., 0])[..., None]
        q = label_smoothing / max(classes, 1) * w * kept
        q = q + (1 - label_smoothing) * own * (np.arange(classes) == index[..., None])
        divisor = own.sum()
    scale = grad_output[..., None] if reduction == "none" else grad_output
    if reduction == "mean":
        scale = scale / divisor
    return np.moveaxis((p * q.sum(-1, keepdims=True) - q) * scale, -1, dim)


def cross_entropy_backward_samples(make: Any) -> Iterator[Sample]:
    """Classes and probabilities, every reduction, with and without weights and smoothing."""
    for shape in ((3,), (4, 3), (8, 8), (2, 5, 2, 3)):
        classes = shape[0] if len(shape) == 1 else shape[1]
        rest = () if len(shape) == 1 else (shape[0], *shape[2:])
        target = make.index(rest, classes)
        for reduction in REDUCTIONS:
            grad = make(rest if reduction == "none" else ())
            yield Sample(grad, make(shape), target, None, -100, reduction, 0.0)
            options = make.positive((classes,)), -100, reduction, 0.1
            yield Sample(grad, make(shape), target, *options)
            yield Sample(grad, make(shape), make.positive(shape), *options)


def nll_backward_reference(
    grad_output: Any, input_shape: Any, target: Any, weight: Any, ignore_index: Any, reduction: Any
) -> Any:
    """One element of each row or position."""
    dim = 0 if len(input_shape) == 1 else 1
    w = np.ones(input_shape[dim]) if weight is None else weight
    kept = target != ignore_index
    index = np.where(kept, target, 0)
    own = w[index] * kept
    scale = grad_output / own.sum() if reduction == "mean" else grad_output
    places = np.arange(input_shape[dim]) == index[..., None]
    return np.moveaxis(places * -(own * scale)[..., None], -1, dim)


def nll_backward_samples(make: Any) -> Iterator[Sample]:
    """Every reduction, with and without weights; ignored targets."""
    for shape in ((3,), (4, 3), (8, 8), (2, 5, 2, 3)):
        classes = shape[0] if len(shape) == 1 else shape[1]
        rest = () if len(shape) == 1 else (shape[0], *shape[2:])
        target = make.index(rest, classes)
        for reduction in REDUCTIONS:
            grad = make(rest if reduction == "none" else ())
            yield Sample(grad, shape, target, None, -100, reduction)
            yield Sample(grad, shape, target, make.positive((classes,)), -100, reduction)
        yield Sample(make(()), shape, np.where(target == 1, 0, target), None, 1, "sum")


# ---- pooling ----------------------------------------------------------------------------------
