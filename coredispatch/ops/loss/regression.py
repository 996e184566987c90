"""Losses of regression, of distributions, and of distances between embeddings.

``reduction`` is ``"mean"``, ``"sum"`` or ``"none"`` everywhere; anything else raises
``ArgumentError``. Inputs and targets broadcast against each other.
"""

from __future__ import annotations

from math import inf, log, pi
from typing import Any

from coredispatch.ops.loss.classification import reduce_loss
from coredispatch.ops.loss.margin_reference import (
    cosine_reference,
    cosine_samples,
    gaussian_reference,
    gaussian_samples,
    hinge_reference,
    hinge_samples,
    multi_margin_reference,
    multi_margin_samples,
    poisson_reference,
    poisson_samples,
    ranking_reference,
    ranking_samples,
    soft_margin_reference,
    soft_margin_samples,
    triplet_reference,
    triplet_samples,
)
from coredispatch.ops.loss.reference import (
    LOSS_METADATA,
    absolute_reference,
    huber_reference,
    kl_reference,
    kl_samples,
    regression_samples,
    smooth_reference,
    squared_reference,
    threshold_samples,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import NUMBER, REAL_NUMBER, promote, promote_float
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import default_dtype
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError

# ---- regression -------------------------------------------------------------------------------


@composite(
    takes="float",
    dtype=promote_float,
    reference=squared_reference,
    samples=regression_samples,
    **{**LOSS_METADATA, "unbroadcast": True},
)
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Mean squared error, ``(input - target)^2``."""
    difference = input - target
    return reduce_loss(difference * difference, reduction)


def _mse_grad(grad: Any, input: Any, target: Any, reduction: Any) -> Any:
    difference = input - target
    factor = 2 / max(difference.numel(), 1) if reduction == "mean" else 2
    return difference * (grad * factor)


mse_loss.vjp(
    input=_mse_grad,
    target=lambda grad, input, target, reduction: _mse_grad(grad, target, input, reduction),
)


@mse_loss.overload
def _(input: Tensor, target: Tensor, reduction: str = "mean", *, weight: Tensor | None) -> Tensor:
    difference = input - target
    return _weighted(difference * difference, weight, input, reduction)


def _weighted(loss: Tensor, weight: Tensor | None, input: Tensor, reduction: str) -> Tensor:
    """The reduced elementwise loss; a weighted mean is divided by the sum of the weights."""
    if weight is None:
        return reduce_loss(loss, reduction)
    if tuple(weight.shape) != tuple(input.shape):
        raise ShapeError(
            f"a weight of shape {tuple(weight.shape)} does not fit an input of shape "
            f"{tuple(input.shape)}",
            fix="use a weight of the input's shape",
        )
    if reduction == "mean":
        return (loss * weight).sum() / weight.sum()
    return reduce_loss(loss * weight, reduction)


@composite(
    takes=NUMBER,
    reference=absolute_reference,
    samples=regression_samples,
    smooth=False,
    **LOSS_METADATA,
)
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Mean absolute error, ``|input - target|``; its derivative at 0 is 0."""
    return reduce_loss((input - target).abs(), reduction)


l1_loss.edge("0 at 0", [0.0, 2.0], [0.0, 1.0], reduction="sum", gradient=([0.0, 1.0], [0.0, -1.0]))


@l1_loss.overload
def _(input: Tensor, target: Tensor, reduction: str = "mean", *, weight: Tensor | None) -> Tensor:
    return _weighted((input - target).abs(), weight, input, reduction)


@composite(
    takes="float",
    dtype=promote,
    reference=smooth_reference,
    samples=threshold_samples("beta"),
    smooth=False,
    **{**LOSS_METADATA, "unbroadcast": True},
)
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """``d^2 / (2 * beta)`` where ``d = |input - target|`` is below ``beta``, else ``d - beta / 2``.

    Girshick, "Fast R-CNN", 2015. ``beta=0`` is :func:`l1_loss`; below 0 raises ``ArgumentError``.
    """
    if beta < 0:
        raise ArgumentError(
            f"beta must not be negative, got {beta}", fix="use a beta of at least 0"
        )
    if beta == 0:
        return l1_loss(input, target, reduction)
    d = (input - target).abs()
    # The quadratic part is fed clamped values, so that its gradient elsewhere stays finite.
    near = d.clamp_max(beta)
    return reduce_loss(near * near * (0.5 / beta) + (d - near), reduction)


smooth_l1_loss.edge(
    "the line's at the border",
    [1.0, -1.0, 0.0],
    [0.0, 0.0, 0.0],
    reduction="sum",
    gradient=([1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]),
)


def _smooth_grad(grad: Any, input: Any, target: Any, reduction: str, beta: float) -> Any:
    difference = input - target
    slope = difference.sgn() if beta == 0 else (difference / beta).clamp(-1, 1)
    return slope * _of_each(grad, difference, reduction)


def _of_each(grad: Any, elements: Any, reduction: str) -> Any:
    """The gradient of each of the elements that :func:`reduce_loss` reduced."""
    return grad * (1 / max(elements.numel(), 1)) if reduction == "mean" else grad


smooth_l1_loss.vjp(
    input=_smooth_grad,
    target=lambda grad, input, target, reduction, beta: _smooth_grad(
        grad, target, input, reduction, beta
    ),
)


@composite(
    takes="float",
    dtype=promote,
    reference=huber_reference,
    samples=threshold_samples("delta"),
    smooth=False,
    **{**LOSS_METADATA, "unbroadcast": True},
)
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """``d^2 / 2`` for ``d = |input - target|`` below ``delta``, else ``delta * (d - delta / 2)``.

    Huber, 1964. Raises ``ArgumentError`` unless ``delta`` is above 0.
    """
    if delta <= 0:
        raise ArgumentError(f"delta must be positive, got {delta}", fix="use a delta above 0")
    d = (input - target).abs()
    near = d.clamp_max(delta)
    if delta == inf:  # nothing is beyond it
        return reduce_loss(near * near * 0.5, reduction)
    return reduce_loss(near * near * 0.5 + (d - near) * delta, reduction)


huber_loss.edge(
    "the line's at the border",
    [1.0, -1.0, 0.0],
    [0.0, 0.0, 0.0],
    reduction="sum",
    gradient=([1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]),
)


def _huber_grad(grad: Any, input: Any, target: Any, reduction: str, delta: float) -> Any:
    difference = input - target
    return difference.clamp(-delta, delta) * _of_each(grad, difference, reduction)


huber_loss.vjp(
    input=_huber_grad,
    target=lambda grad, input, target, reduction, delta: _huber_grad(
        grad, target, input, reduction, delta
    ),
)


@huber_loss.overload
def _(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    *,
    weight: Tensor | None,
) -> Tensor:
    # PyTorch divides this one by the number of elements, not by the sum of the weights.
    loss = huber_loss(input, target, "none", delta)
    return reduce_loss(_weighted(loss, weight, input, "none"), reduction)


# ---- distributions ----------------------------------------------------------------------------


@composite(takes="float", reference=kl_reference, samples=kl_samples, **LOSS_METADATA)
def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """``target * (log(target) - input)`` for log-probabilities ``input``.

    With ``log_target`` the target holds logarithms too. ``reduction="batchmean"``, the
    mathematical divergence, divides the sum by the first dimension. Kullback and Leibler, 1951.
    """
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = lazy.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    return reduce_loss(loss, reduction)


@composite(
    takes="float",
    reference=gaussian_reference,
    samples=gaussian_samples,
    smooth=False,
    **{**LOSS_METADATA, "cast": "float32_accelerated"},
)
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | Scalar,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """``(log(var) + (input - target)^2 / var) / 2`` with ``var`` at least ``eps``.

    ``var`` has the input's shape, or 1 (or nothing) in place of the last dimension. ``full`` adds
    the constant ``log(2 * pi) / 2``. Nix and Weigend, 1994.
    """
    if var is None:
        raise DTypeError("the variance is missing", fix="give var a tensor or a number")
    if not hasattr(var, "shape"):
        var = lazy.full_like(input, var)
    if tuple(var.shape) != tuple(input.shape):
        if tuple(var.shape) == tuple(input.shape[:-1]):
            var = var.unsqueeze(-1)
        elif tuple(var.shape) != (*input.shape[:-1], 1):
            raise ArgumentError(
                f"var of shape {tuple(var.shape)} does not fit an input of shape "
                f"{tuple(input.shape)}",
                fix="use the input's shape, or 1 in place of its last dimension",
            )
    var = lazy.checked(var, var.detach(), 0, None, "variance")
    # Clamped outside the graph: PyTorch's gradient of var ignores the clamp.
    var = var + (var.detach().clamp_min(eps) - var.detach())
    difference = input - target
    loss = (var.log() + difference * difference / var) * 0.5
    return reduce_loss(loss + 0.5 * log(2 * pi) if full else loss, reduction)


@composite(reference=poisson_reference, samples=poisson_samples, **LOSS_METADATA)
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """``exp(input) - target * input``, or ``input - target * log(input + eps)``.

    ``log_input`` says whether ``input`` is the logarithm of the rate. ``full`` adds Stirling's
    approximation of ``log(target!)`` where the target is above 1.
    """
    if log_input:
        loss = input.exp() - target * input
    else:
        loss = input - target * (input + eps).log()
    if full:
        positive = target.clamp_min(1)
        stirling = positive * positive.log() - positive + 0.5 * (positive * (2 * pi)).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduce_loss(loss, reduction)


# ---- margins ----------------------------------------------------------------------------------


@composite(
    takes="float+complex",
    reference=soft_margin_reference,
    samples=soft_margin_samples,
    **LOSS_METADATA,
)
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``log(1 + exp(-target * input))`` for targets of 1 and -1."""
    return reduce_loss(-lazy.logsigmoid(target * input), reduction)


@composite(reference=hinge_reference, samples=hinge_samples, smooth=False, **LOSS_METADATA)
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """``input`` where ``target`` is 1, ``max(0, margin - input)`` where it is -1."""
    # any other target counts as both
    close = input.masked_fill(target == -1, 0)
    far = (margin - input).clamp_min(0).masked_fill(target == 1, 0)
    return reduce_loss(close + far, reduction)


@composite(
    takes=REAL_NUMBER,
    reference=ranking_reference,
    samples=ranking_samples,
    smooth=False,
    **LOSS_METADATA,
)
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """``max(0, margin - target * (input1 - input2))`` for targets of 1 and -1."""
    if not input1.ndim == input2.ndim == target.ndim:
        raise ShapeError(
            f"inputs and target of shapes {tuple(input1.shape)}, {tuple(input2.shape)} and "
            f"{tuple(target.shape)} have other numbers of dimensions",
            fix="add dimensions with unsqueeze",
        )
    return reduce_loss((margin - target * (input1 - input2)).clamp_min(0), reduction)


@composite(
    takes="real", reference=cosine_reference, samples=cosine_samples, smooth=False, **LOSS_METADATA
)
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """``1 - cos`` where ``target`` is 1, ``max(0, cos - margin)`` where it is -1.

    Inputs are ``(N, D)`` with a target ``(N,)``, or ``(D,)`` with a 0-d target.
    """
    if target.ndim > 1 or input1.ndim != target.ndim + 1 or input2.ndim != input1.ndim:
        raise ShapeError(
            f"a target of shape {tuple(target.shape)} does not fit inputs of shapes "
            f"{tuple(input1.shape)} and {tuple(input2.shape)}",
            fix="use (N, D) with a target (N,), or (D,) with a target ()",
        )
    # PyTorch adds its epsilon to the squared norms here, not to the norms.
    common = promote.compute(input1, input2)
    if common.category < 2:  # integers would truncate the cosine
        common = default_dtype()
    input1, input2 = lazy.to_dtype(input1, common), lazy.to_dtype(input2, common)
    a, b = wide(input1), wide(input2)  # half precision knows no number as small
    square1 = (a * a).sum(-1) + 1e-12
    square2 = (b * b).sum(-1) + 1e-12
    cosine = narrow((a * b).sum(-1) / (square1 * square2).sqrt(), input1)
    close = (1 - cosine).masked_fill(target != 1, 0)
    far = (cosine - margin).clamp_min(0).masked_fill(target != -1, 0)
    return reduce_loss(close + far, reduction)


def check_margin(margin: float) -> None:
    """Refuse a margin of a triplet loss that is not positive."""
    if margin <= 0:
        raise ArgumentError(f"margin must be greater than 0, got {margin}", fix="use 1.0")


@composite(
    takes=NUMBER,
    reference=triplet_reference,
    samples=triplet_samples,
    smooth=False,
    **LOSS_METADATA,
)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` with the ``p``-norm ``d``.

    ``swap`` uses the nearer of anchor and positive to the negative. Balntas et al., 2016.
    Raises ``ArgumentError`` unless ``margin`` is positive.
    """
    check_margin(margin)
    near = lazy.pairwise_distance(anchor, positive, p, eps)
    far = lazy.pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(lazy.pairwise_distance(positive, negative, p, eps))
    return reduce_loss((near - far + margin).clamp_min(0), reduction)


@composite(
    takes="float",
    reference=multi_margin_reference,
    samples=multi_margin_samples,
    smooth=False,
    **LOSS_METADATA,
)
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``sum_{i != y} weight[y] * max(0, margin - input[y] + input[i])^p / C`` of ``(N, C)``.

    ``target`` holds the classes ``y``, ``(N,)``. Raises ``ArgumentError`` unless ``p`` is 1 or 2.
    """
    if p not in (1, 2):
        raise ArgumentError(f"p must be 1 or 2, got {p}", fix="use 1 or 2")
    rows = tuple(input.shape[:-1])
    if input.ndim not in (1, 2) or tuple(target.shape) not in (rows, rows or (1,)):
        raise ShapeError(
            f"a target of shape {tuple(target.shape)} does not fit an input of shape "
            f"{tuple(input.shape)}",
            fix="use (N, C) with a target (N,), or (C,) with one class",
        )
    if weight is not None and tuple(weight.shape) != (input.shape[-1],):
        raise ShapeError(
            f"weight of shape {tuple(weight.shape)} does not fit {input.shape[-1]} classes",
            fix=f"give one weight per class, shape ({input.shape[-1]},)",
        )
    single = target.ndim > len(rows)  # (C,) with a target (1,) is one row
    input = input.unsqueeze(0) if single else input
    index = target.unsqueeze(-1)
    own = input.gather(-1, index)
    terms = (margin - own + input).clamp_min(0)
    if p == 2:
        terms = terms * terms
    if weight is not None:
        terms = terms * weight[index]
    terms = terms.scatter(-1, index, 0.0)
    return reduce_loss(terms.sum(-1) / input.shape[-1], reduction)
