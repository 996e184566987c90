"""Metadata that the definitions of losses share: rules, NumPy references, samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support.rules import conditioned, require_one_of
from coredispatch.ops.support.samples import Sample

REDUCTIONS = ("mean", "sum", "none")

LOSS_METADATA: dict[str, Any] = {
    "cast": "float32",
    "dtypes": "float",
    "tolerance": conditioned,
    "namespace": "nn.functional",
    "unbroadcast": False,
}


def reduced_loss(shape: Any, reduction: str) -> Any:
    """Shape of a loss. Raises :class:`ArgumentError` for an unknown reduction."""
    require_one_of("reduction", reduction, REDUCTIONS)
    return tuple(shape) if reduction == "none" else ()


def target_shape(shape: Any) -> Any:
    """Shape of the class indices for logits of ``shape``."""
    return () if len(shape) == 1 else (shape[0], *shape[2:])


def reduce(loss: Any, reduction: str) -> Any:
    """Mean, sum or all."""
    return loss if reduction == "none" else getattr(loss, reduction)()


# ---- classes ----------------------------------------------------------------------------------


def _log_softmax(x: Any, dim: int) -> Any:
    z = x - x.max(dim, keepdims=True) if x.size else x
    return z - np.log(np.exp(z).sum(dim, keepdims=True))


def cross_entropy_reference(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Class by class, over the target's weighted distribution."""
    dim = 0 if input.ndim == 1 else 1
    classes = input.shape[dim]
    logp = np.moveaxis(_log_softmax(input, dim), dim, -1)
    w = np.ones(classes) if weight is None else weight
    if target.dtype.kind == "f":
        q = np.moveaxis(target, dim, -1) * (1 - label_smoothing) + label_smoothing / max(classes, 1)
        loss = -(logp * q * w).sum(-1)
        divisor = loss.size if classes else 0
    else:
        kept = target != ignore_index
        index = np.where(kept, target, 0)
        own = w[index] * kept
        picked = np.take_along_axis(logp, index[..., None], -1)[..., 0]
        smooth = -(logp * w).sum(-1) * kept / max(classes, 1)
        loss = -(1 - label_smoothing) * picked * own + label_smoothing * smooth
        divisor = own.sum()
    if reduction == "none":
        return loss
    return loss.sum() / (divisor if reduction == "mean" else 1)


def nll_reference(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    """One term per target."""
    dim = 0 if input.ndim == 1 else 1
    w = np.ones(input.shape[dim]) if weight is None else weight
    kept = target != ignore_index
    index = np.where(kept, target, 0)
    own = w[index] * kept
    moved = np.moveaxis(input, dim, -1)
    loss = -np.take_along_axis(moved, index[..., None], -1)[..., 0] * own
    if reduction == "none":
        return loss
    return loss.sum() / (own.sum() if reduction == "mean" else 1)


_LOGITS = ((3,), (4, 3), (8, 8), (1, 5), (2, 3, 4), (2, 5, 2, 3))


def _classes(make: Any, shape: Any) -> tuple[Any, int]:
    classes = shape[0] if len(shape) == 1 else shape[1]
    return make.index(target_shape(shape), classes), classes


def cross_entropy_samples(make: Any) -> Iterator[Sample]:
    """Classes and probabilities; every option; ignored targets."""
    for shape in _LOGITS:
        target, classes = _classes(make, shape)
        for reduction in REDUCTIONS:
            yield Sample(make(shape), target, None, -100, reduction)
        yield Sample(make(shape), target, make.positive((classes,)), -100, "mean", 0.1)
        if target.size > 1:
            ignored = target.copy()
            ignored.flat[0] = -100
            yield Sample(make(shape), ignored, None, -100, "mean", 0.2)
            yield Sample(make(shape), ignored, make.positive((classes,)), -100, "none")
            kept = np.where(target == 1, 0, target)
            yield Sample(make(shape), kept, None, 1, "sum")
        share = make.positive(shape)
        yield Sample(make(shape), share, None, -100, "mean", 0.1)
        yield Sample(make(shape), share, make.positive((classes,)), -100, "none")
    yield Sample(make((0, 3)), np.zeros(0, np.int64), None, -100, "sum")


def cross_entropy_errors(make: Any) -> Iterator[tuple[Sample, type[Exception], str]]:
    """Targets out of range, of the wrong shape or dtype; an unknown reduction."""
    x = make((4, 3))
    yield Sample(x, np.array([0, 1, 2, 3])), IndexError, "out of bounds"
    yield Sample(x, np.array([0, 1, -1, 2])), IndexError, "out of bounds"
    yield Sample(x, np.array([0, 1, 2])), RuntimeError, "target of shape"
    yield Sample(x, np.array([0.0, 1.0, 2.0, 0.0])), TypeError, "class indices"
    yield Sample(x, np.array([0, 1, 2, 0]), None, -100, "median"), ValueError, "reduction"
    yield Sample(make(()), make(())), RuntimeError, "no classes"


def nll_samples(make: Any) -> Iterator[Sample]:
    """Every reduction, weights, ignored targets."""
    for shape in _LOGITS:
        target, classes = _classes(make, shape)
        for reduction in REDUCTIONS:
            yield Sample(make(shape), target, None, -100, reduction)
        yield Sample(make(shape), target, make.positive((classes,)), -100, "mean")
        yield Sample(make(shape), np.where(target == 1, 0, target), None, 1, "sum")


# ---- binary -----------------------------------------------------------------------------------


def bce_reference(input: Any, target: Any, weight: Any = None, reduction: str = "none") -> Any:
    """Logarithms clamped at -100."""
    with np.errstate(divide="ignore"):
        positive, negative = np.log(input), np.log1p(-input)
    loss = -(target * np.maximum(positive, -100) + (1 - target) * np.maximum(negative, -100))
    return reduce(loss if weight is None else loss * weight, reduction)


def bce_with_logits_reference(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    """By ``log(1 + exp(-x))``, whose distance from ``-x`` decides at infinities as in PyTorch."""
    w = 1 if pos_weight is None else pos_weight
    loss = (1 - target) * input + (1 + (w - 1) * target) * np.logaddexp(0, -input)
    return reduce(loss if weight is None else loss * weight, reduction)


def multilabel_reference(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Any:
    """Mean over the classes."""
    loss = target * np.logaddexp(0, -input) + (1 - target) * np.logaddexp(0, input)
    return reduce((loss if weight is None else loss * weight).mean(-1), reduction)


_SHAPES = ((), (5,), (3, 4), (8, 8), (2, 3, 4))


def _unit(make: Any, shape: Any) -> Any:
    return make(shape, low=0.05, high=0.95)


def binary_samples(make: Any) -> Iterator[Sample]:
    """Probabilities, targets between 0 and 1."""
    for shape in _SHAPES:
        for reduction in REDUCTIONS:
            yield Sample(_unit(make, shape), _unit(make, shape), None, reduction)
        yield Sample(_unit(make, shape), _unit(make, shape), make.positive(shape), "mean")


def logit_samples(make: Any) -> Iterator[Sample]:
    """Logits, with and without both weights."""
    for shape in _SHAPES:
        for reduction in REDUCTIONS:
            yield Sample(make(shape), _unit(make, shape), None, reduction)
        yield Sample(
            make(shape),
            _unit(make, shape),
            make.positive(shape),
            "mean",
            make.positive(shape[-1:]),
        )


def multilabel_samples(make: Any) -> Iterator[Sample]:
    """As :func:`logit_samples`, with a class dimension."""
    for shape in _SHAPES[1:]:
        yield Sample(make(shape), _unit(make, shape), None, "mean")
        yield Sample(make(shape), _unit(make, shape), make.positive(shape[-1:]), "none")


# ---- distances and distributions --------------------------------------------------------------


def _apart(make: Any, shape: Any) -> tuple[Any, Any]:
    return make(shape), make(shape)


def regression_samples(make: Any) -> Iterator[Sample]:
    """``op(input, target, reduction)``, shapes equal and broadcast."""
    for shape in (*_SHAPES, (257,)):
        for reduction in REDUCTIONS:
            yield Sample(*_apart(make, shape), reduction=reduction)
    yield Sample(make((3, 1)), make((3, 4)), reduction="mean")


def threshold_samples(name: str) -> Any:
    """As :func:`regression_samples`, with the threshold ``name`` in both of its regions."""

    def sampler(make: Any) -> Iterator[Sample]:
        yield from regression_samples(make)
        for value in (0.25, 2.0):
            yield Sample(*_apart(make, (3, 4)), **{"reduction": "mean", name: value})

    return sampler


def squared_reference(self: Any, target: Any, reduction: str = "mean") -> Any:
    """``(x - y)^2``."""
    return reduce((self - target) ** 2, reduction)


def absolute_reference(input: Any, target: Any, reduction: str = "mean") -> Any:
    """``|x - y|``."""
    return reduce(np.abs(input - target), reduction)


def smooth_reference(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    """Quadratic below ``beta``."""
    d = np.abs(input - target)
    return reduce(np.where(d < beta, d * d / (2 * beta or 1), d - beta / 2), reduction)


def huber_reference(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Any:
    """``delta`` times the smooth L1 loss."""
    d = np.abs(input - target)
    return reduce(np.where(d < delta, d * d / 2, delta * (d - delta / 2)), reduction)


def kl_reference(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    """``target * (log(target) - input)``."""
    if log_target:
        loss = np.exp(target) * (target - input)
    else:
        loss = np.where(target == 0, 0, target * np.log(np.where(target == 0, 1, target)))
        loss = loss - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    return reduce(loss, reduction)


def kl_samples(make: Any) -> Iterator[Sample]:
    """Plain and logarithmic targets; every reduction."""
    for shape in ((5,), (3, 4), (2, 3, 4)):
        for reduction in (*REDUCTIONS, "batchmean"):
            yield Sample(make(shape), make.positive(shape), reduction)
        yield Sample(make(shape), make(shape), "mean", True)
    yield Sample(make((3,)), np.array([0.0, 0.5, 0.5]).astype(make((3,)).dtype), "sum")
