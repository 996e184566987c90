"""NumPy references and samples of the losses by distribution and by margin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.loss.reference import REDUCTIONS, reduce
from coredispatch.ops.support.samples import Sample


def _signs(make: Any, shape: Any) -> Any:
    """1 and -1, in the dtype of the case."""
    return np.asarray(np.where(make.mask(shape), 1, -1)).astype(make(()).dtype)


def gaussian_reference(
    input: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """Negative log density of a normal distribution."""
    if np.ndim(var) and var.shape == input.shape[:-1] != input.shape:
        var = var[..., None]
    var = np.maximum(var, eps)
    loss = 0.5 * (np.log(var) + (input - target) ** 2 / var)
    return reduce(loss + (0.5 * np.log(2 * np.pi) if full else 0), reduction)


def gaussian_samples(make: Any) -> Iterator[Sample]:
    """Variances of each admitted shape."""
    for reduction in REDUCTIONS:
        yield Sample(make((3, 4)), make((3, 4)), make.positive((3, 4)), False, 1e-6, reduction)
    yield Sample(make((3, 4)), make((3, 4)), make.positive((3, 1)), True)
    yield Sample(make((3, 4)), make((3, 4)), make.positive((3,)))


def poisson_reference(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    """Negative log probability of a Poisson distribution."""
    loss = np.exp(input) - target * input if log_input else input - target * np.log(input + eps)
    if full:
        t = np.maximum(target, 1)
        stirling = t * np.log(t) - t + 0.5 * np.log(2 * np.pi * t)
        loss = loss + np.where(target > 1, stirling, 0)
    return reduce(loss, reduction)


def poisson_samples(make: Any) -> Iterator[Sample]:
    """Rates and their logarithms."""
    for reduction in REDUCTIONS:
        yield Sample(make((3, 4)), make.positive((3, 4)), True, False, 1e-8, reduction)
    yield Sample(make.positive((3, 4)), make.positive((3, 4)), False)
    yield Sample(make((5,)), make.positive((5,)), True, True)


def soft_margin_reference(input: Any, target: Any, reduction: str = "mean") -> Any:
    """By ``log(1 + exp)``."""
    return reduce(np.logaddexp(0, -target * input), reduction)


def soft_margin_samples(make: Any) -> Iterator[Sample]:
    """Targets of both signs."""
    for shape in ((5,), (3, 4)):
        for reduction in REDUCTIONS:
            yield Sample(make(shape), _signs(make, shape), reduction)


def hinge_reference(input: Any, target: Any, margin: float = 1.0, reduction: str = "mean") -> Any:
    """One branch per sign of the target."""
    close = np.where(target != -1, input, 0)
    return reduce(close + np.where(target != 1, np.maximum(0, margin - input), 0), reduction)


def hinge_samples(make: Any) -> Iterator[Sample]:
    """Targets of both signs, two margins."""
    for margin in (1.0, 0.3):
        for reduction in REDUCTIONS:
            yield Sample(make((3, 4)), _signs(make, (3, 4)), margin, reduction)


def ranking_reference(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    """Hinge of the difference."""
    return reduce(np.maximum(0, -target * (input1 - input2) + margin), reduction)


def ranking_samples(make: Any) -> Iterator[Sample]:
    """Targets of both signs, two margins."""
    for margin in (0.0, 0.5):
        for reduction in REDUCTIONS:
            yield Sample(make((5,)), make((5,)), _signs(make, (5,)), margin, reduction)


def cosine_reference(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    """With PyTorch's epsilon of 1e-12 on the squared norms."""
    norms = np.sqrt(((input1**2).sum(-1) + 1e-12) * ((input2**2).sum(-1) + 1e-12))
    cosine = (input1 * input2).sum(-1) / norms
    loss = np.where(target == 1, 1 - cosine, np.maximum(0, cosine - margin))
    return reduce(loss, reduction)


def cosine_samples(make: Any) -> Iterator[Sample]:
    """A batch and a single pair."""
    for reduction in REDUCTIONS:
        yield Sample(make((4, 3)), make((4, 3)), _signs(make, (4,)), 0.1, reduction)
    yield Sample(make((3,)), make((3,)), _signs(make, ()))


def _distance(x: Any, y: Any, p: float, eps: float) -> Any:
    return (np.abs(x - y + eps) ** p).sum(-1) ** (1 / p)


def triplet_reference(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """Hinge of the difference of distances."""
    far = _distance(anchor, negative, p, eps)
    if swap:
        far = np.minimum(far, _distance(positive, negative, p, eps))
    return reduce(np.maximum(0, _distance(anchor, positive, p, eps) - far + margin), reduction)


def triplet_samples(make: Any) -> Iterator[Sample]:
    """Two norms, with and without swap."""
    for reduction in REDUCTIONS:
        three = make((4, 3)), make((4, 3)), make((4, 3))
        yield Sample(*three, 1.0, 2.0, 1e-6, False, reduction)
        yield Sample(*three, 0.5, 1.0, 1e-6, True, reduction)


def multi_margin_reference(
    input: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    reduction: str = "mean",
) -> Any:
    """Class by class."""
    own = np.take_along_axis(input, target[..., None], -1)
    terms = np.maximum(0, margin - own + input) ** p
    if weight is not None:
        terms = terms * weight[target][..., None]
    np.put_along_axis(terms, target[..., None], 0, -1)
    return reduce(terms.sum(-1) / input.shape[-1], reduction)


def multi_margin_samples(make: Any) -> Iterator[Sample]:
    """Both powers, with and without weights."""
    for p in (1, 2):
        for reduction in REDUCTIONS:
            yield Sample(make((4, 3)), make.index((4,), 3), p, 1.0, None, reduction)
        yield Sample(make((4, 3)), make.index((4,), 3), p, 0.5, make.positive((3,)))
