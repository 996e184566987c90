"""The margin loss of several classes per row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.loss.classification import reduce_loss
from coredispatch.ops.loss.reference import LOSS_METADATA, REDUCTIONS, reduce, reduced_loss
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.errors import DTypeError, ShapeError


def _reference(input: Any, target: Any, reduction: str = "mean") -> Any:
    """Class by class."""
    rows, targets = np.atleast_2d(input), np.atleast_2d(target)
    losses = []
    for x, row in zip(rows, targets):
        end = int(np.argmax(row < 0)) if (row < 0).any() else len(row)
        own = [int(j) for j in row[:end]]
        others = [i for i in range(len(x)) if i not in own]
        hinges = [np.maximum(0.0, 1 - (x[j] - x[i])) for j in own for i in others]
        losses.append(sum(hinges) / len(x))
    return reduce(np.array(losses).reshape(input.shape[:-1]), reduction)


def _samples(make: Any) -> Iterator[Sample]:
    """Rows with all, some and none of the classes, and one row alone."""
    target = np.array([[3, 0, -1, 1], [-1, 2, 1, 0], [2, 1, 0, 3]])
    for reduction in REDUCTIONS:
        yield Sample(make((3, 4)), target, reduction)
        yield Sample(make((4,)), target[0], reduction)


def _shape(input: Any, target: Any, reduction: str = "mean") -> Any:
    if input.ndim not in (1, 2) or tuple(target.shape) != tuple(input.shape) or 0 in input.shape:
        raise ShapeError(
            f"an input of shape {tuple(input.shape)} and a target of shape {tuple(target.shape)}",
            fix="use (C,) or (N, C) for both",
        )
    if target.dtype.name != "int64":
        raise DTypeError(f"target has dtype {target.dtype}", fix="convert it with .long()")
    return reduced_loss(tuple(input.shape[:-1]), reduction)


@composite(
    takes="float",
    out=_shape,
    dtype=same,
    reference=_reference,
    samples=_samples,
    smooth=False,
    **LOSS_METADATA,
)
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``sum max(0, 1 - (x_j - x_i)) / C`` over target classes ``j`` and all other classes ``i``.

    ``input`` and ``target`` are ``(C,)`` or ``(N, C)``; a row of ``target`` lists classes up to the
    first negative number. The result is 0-dim, or ``(N,)`` for ``reduction="none"``. Raises
    ``DimError`` for a class out of range.
    """
    shape = _shape(input, target, reduction)
    classes = input.shape[-1]
    x, rows = wide(input).reshape(-1, classes), target.reshape(-1, classes)
    listed = (rows >= 0).long().cumprod(1) == 1
    index = rows.masked_fill(~listed, 0)
    index = lazy.checked(index, index, None, classes - 1, "listed class")
    is_target = lazy.zeros_like(x).scatter_add(1, index, listed.to(x.dtype)) > 0
    own = x.gather(1, index).unsqueeze(2)
    terms = (1 - own + x.unsqueeze(1)).clamp_min(0)
    terms = terms.masked_fill(~listed.unsqueeze(2) | is_target.unsqueeze(1), 0)
    loss = reduce_loss((terms.sum((1, 2)) / classes).reshape(input.shape[:-1]), reduction)
    return narrow(loss.reshape(shape), input)
