"""Losses of classification: cross entropy, negative log likelihood, binary and multi-label forms.

``reduction`` is ``"mean"``, ``"sum"`` or ``"none"`` everywhere; anything else raises
``ArgumentError``.
"""

from __future__ import annotations

from typing import Any

from coredispatch.ops.loss.backward_reference import (
    cross_entropy_backward_reference,
    cross_entropy_backward_samples,
    nll_backward_reference,
    nll_backward_samples,
)
from coredispatch.ops.loss.reference import (
    LOSS_METADATA,
    bce_reference,
    bce_with_logits_reference,
    binary_samples,
    cross_entropy_errors,
    cross_entropy_reference,
    cross_entropy_samples,
    logit_samples,
    multilabel_reference,
    multilabel_samples,
    nll_reference,
    nll_samples,
    reduced_loss,
    target_shape,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import no_gradient
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.inspection import any_true
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import same
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError
from coredispatch.registry.model.value import dtype_of

# ---- cross entropy ----------------------------------------------------------------------------


def _require_classes(input: Tensor) -> None:
    if len(input.shape) == 0:
        raise ShapeError(
            "the input is 0-dim and has no classes", fix="use (C,), (N, C) or (N, C, *)"
        )


def _check_target(input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    _require_classes(input)
    given, expected = tuple(target.shape), target_shape(tuple(input.shape))
    if given != expected and (input.ndim > 1 or given != (1,)):
        raise ShapeError(
            f"a target of shape {given} does not fit an input of shape {tuple(input.shape)}",
            fix=f"use class indices of shape {expected}, or probabilities of the input's shape",
        )
    if target.dtype.kind not in "iu":
        raise DTypeError(
            f"class indices must be integers, and target has dtype {target.dtype}",
            fix="convert them with .long()",
        )
    classes = input.shape[-1 if input.ndim == 1 else 1]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"weight of shape {tuple(weight.shape)} does not fit {classes} classes",
            fix=f"give one weight per class, shape ({classes},)",
        )


def _is_distribution(input: Tensor, target: Tensor) -> bool:
    if tuple(target.shape) != tuple(input.shape) or target.dtype.kind in "iub":
        return False
    if target.dtype.kind == "c":
        raise DTypeError(
            f"class probabilities are floating, not {target.dtype}", fix="use target.real"
        )
    return True


def _class_weights(weight: Tensor, ndim: int) -> Tensor:
    """``(C,)`` shaped to broadcast along the class dimension."""
    return weight if ndim == 1 else weight.reshape(1, -1, *(1,) * (ndim - 2))


def _kept(
    target: Tensor, ignore_index: int, classes: int, expected: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """The classes with ignored ones as 0, and which ones count. Raises for invalid classes."""
    target = target.reshape(expected)
    kept = target != ignore_index
    index = target.masked_fill(~kept, 0)
    return lazy.checked(index, index, 0, classes - 1, "class"), kept


def _distribution(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[Tensor, Any]:
    """``q`` with ``loss = -sum_c q_c log_softmax_c``, and what the mean divides by."""
    ndim = input.ndim
    dim = 0 if ndim == 1 else 1
    classes = input.shape[dim]
    if _is_distribution(input, target):
        q = target
        if label_smoothing:
            q = q * (1 - label_smoothing) + label_smoothing / max(classes, 1)
        if weight is not None:
            q = q * _class_weights(weight, ndim)
        return q, input.numel() // max(classes, 1)
    _check_target(input, target, weight)
    index, kept = _kept(target, ignore_index, classes, target_shape(tuple(input.shape)))
    counts = kept.to(input.dtype)
    factor = label_smoothing / max(classes, 1)
    own = counts if weight is None else weight[index] * counts
    # The smoothed share of each class has that class's weight, the rest that of the target.
    given = (own * (1 - label_smoothing)).unsqueeze(dim)
    q = lazy.zeros_like(input).scatter_add(dim, index.unsqueeze(dim), given)
    if label_smoothing:
        even = counts.unsqueeze(dim) * factor
        q = q + (even if weight is None else even * _class_weights(weight, ndim))
    return q, own.sum()


def _cross_entropy_shape(input: Any, target: Any, weight: Any, *options: Any) -> Any:
    if len(options) > 2 and not 0 <= options[2] <= 1:
        raise ArgumentError(
            f"label_smoothing must be between 0 and 1, got {options[2]}",
            fix="give the share of a target that goes to all classes",
        )
    _require_classes(input)
    if not _is_distribution(input, target):
        _check_target(input, target, weight)
    return reduced_loss(target_shape(tuple(input.shape)), options[1])


@composite(
    takes="float",
    out=_cross_entropy_shape,
    dtype=same,
    reference=cross_entropy_reference,
    samples=cross_entropy_samples,
    errors=cross_entropy_errors,
    **LOSS_METADATA,
)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative log likelihood of ``target`` under the softmax of the logits ``input``.

    ``input`` is ``(C,)``, ``(N, C)`` or ``(N, C, *)``. ``target`` holds class indices (int64, the
    input's shape without ``C``; those equal to ``ignore_index`` do not count) or probabilities
    (floating, the input's shape). ``weight`` is ``(C,)``; the mean of class indices is weighted.
    ``label_smoothing`` moves that share of each target to all classes evenly (Szegedy et al.,
    2016). The result is 0-d, or of the shape of class indices for ``reduction="none"``. Raises
    ``DimError`` for a class out of range, ``ShapeError`` and ``DTypeError`` for unfit targets.
    """
    options = ignore_index, reduction, label_smoothing
    shape = _cross_entropy_shape(input, target, weight, *options)
    dim = 0 if input.ndim == 1 else 1
    logits = wide(input)
    q, divisor = _distribution(logits, target, weight, ignore_index, label_smoothing)
    terms = lazy.log_softmax(logits, dim) * q
    # 0 * -inf is 0 here: a class without weight does not count.
    loss = -terms.masked_fill(q == 0, 0).sum(dim)
    if reduction == "mean":
        loss = loss.sum() / divisor
    elif reduction == "sum":
        loss = loss.sum()
    return narrow(loss.reshape(shape), input)


def _cross_entropy_grad(
    grad: Any,
    input: Any,
    target: Any,
    weight: Any,
    ignore_index: Any,
    reduction: Any,
    label_smoothing: Any,
) -> Any:
    options = weight, ignore_index, reduction, label_smoothing
    return cross_entropy_backward(grad, input, target, *options)


def _target_grad(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    """Gradient of target probabilities."""
    dim = 0 if input.ndim == 1 else 1
    scale = _row_scale(grad, input, reduction, input.numel() // max(input.shape[dim], 1))
    result = lazy.log_softmax(wide(input), dim) * (label_smoothing - 1) * scale
    return result if weight is None else result * _class_weights(weight, input.ndim)


cross_entropy.vjp(
    input=_cross_entropy_grad,
    target=_target_grad,
    weight=no_gradient("cross_entropy", "weight"),
)


def _row_scale(grad: Tensor, input: Tensor, reduction: str, divisor: Any) -> Tensor:
    """What each row's gradient is multiplied by, shaped to broadcast against the input."""
    if reduction == "none":
        return wide(grad).unsqueeze(0 if input.ndim == 1 else 1)
    return wide(grad) / divisor if reduction == "mean" else wide(grad)


@composite(
    dtype=same,
    reference=cross_entropy_backward_reference,
    samples=cross_entropy_backward_samples,
    out=lambda grad_output, input, *_: tuple(input.shape),
    **{**LOSS_METADATA, "namespace": (), "tolerance": None},
)
def cross_entropy_backward(
    grad_output: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    """Gradient of :func:`cross_entropy` with respect to the logits.

    ``(softmax(input) * sum(q) - q) * grad_output``, with ``q`` the weighted target distribution.
    """
    dim = 0 if input.ndim == 1 else 1
    logits = wide(input)
    q, divisor = _distribution(logits, target, weight, ignore_index, label_smoothing)
    scale = _row_scale(grad_output, input, reduction, divisor)
    total = q.sum(dim, True)
    result = (lazy.softmax(logits, dim) * total - q) * scale
    # Where no target counts the scale is infinite, and the gradient 0 all the same.
    return narrow(result.masked_fill(total == 0, 0), input)


def _nll_shape(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> Any:
    _check_target(input, target, weight)
    return reduced_loss(target_shape(tuple(input.shape)), reduction)


@composite(
    takes="float",
    out=_nll_shape,
    dtype=same,
    reference=nll_reference,
    samples=nll_samples,
    **LOSS_METADATA,
)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """``-weight[target] * input[target]`` for log-probabilities ``input``.

    Shapes, options and errors are those of :func:`cross_entropy` with class indices.
    """
    shape = _nll_shape(input, target, weight, ignore_index, reduction)
    dim = 0 if input.ndim == 1 else 1
    index, kept = _kept(target, ignore_index, input.shape[dim], target_shape(tuple(input.shape)))
    own = kept.to(input.dtype) if weight is None else weight[index].masked_fill(~kept, 0)
    picked = input.gather(dim, index.unsqueeze(dim)).squeeze(dim)
    loss = -(picked if weight is None else picked * own).masked_fill(~kept, 0)
    if reduction == "mean":
        loss = loss.sum() / own.sum()
    elif reduction == "sum":
        loss = loss.sum()
    return loss.reshape(shape)


def _nll_grad(
    grad: Any, input_shape: Any, target: Any, weight: Any, ignore_index: Any, reduction: Any
) -> Any:
    return nll_loss_backward(grad, input_shape, target, weight, ignore_index, reduction)


nll_loss.vjp(input=_nll_grad, weight=no_gradient("nll_loss", "weight"))


@composite(
    dtype=same,
    reference=nll_backward_reference,
    samples=nll_backward_samples,
    out=lambda grad_output, input_shape, *_: tuple(input_shape),
    **{**LOSS_METADATA, "namespace": ()},
)
def nll_loss_backward(
    grad_output: Tensor,
    input_shape: IntList,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """Gradient of :func:`nll_loss`: zeros but for the elements of the targets."""
    shape = tuple(input_shape)
    dim = 0 if len(shape) == 1 else 1
    index, kept = _kept(target, ignore_index, shape[dim], target_shape(shape))
    if weight is None:
        own = kept.to(grad_output.dtype)
    else:
        own = weight[index].masked_fill(~kept, 0)
    scale = wide(grad_output).reshape(index.shape if reduction == "none" else ())
    scale = scale / own.sum() if reduction == "mean" else scale
    # Where no target counts the scale is infinite, and the gradient 0 all the same.
    given = (-scale * own).masked_fill(~kept, 0)
    result = lazy.zeros(shape, dtype=given.dtype, device=grad_output.device)
    return narrow(result.scatter(dim, index.unsqueeze(dim), given.unsqueeze(dim)), grad_output)


# ---- binary and multi-label -------------------------------------------------------------------


def reduce_loss(loss: Tensor, reduction: str) -> Tensor:
    """Mean, sum or all of the elementwise losses."""
    reduced_loss((), reduction)
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def _same_shapes(input: Tensor, target: Tensor) -> None:
    if tuple(input.shape) != tuple(target.shape):
        raise ShapeError(
            f"a target of shape {tuple(target.shape)} does not fit an input of shape "
            f"{tuple(input.shape)}",
            fix="use a target of the input's shape",
        )
    if target.dtype.is_complex:
        raise DTypeError(
            f"not defined for 'target' of dtype {target.dtype.name}", fix="use target.real"
        )


@composite(
    takes="float",
    reference=bce_reference,
    samples=binary_samples,
    values=(0.05, 0.95),
    **LOSS_METADATA,
)
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """``-(target * log(input) + (1 - target) * log(1 - input))`` of probabilities in ``[0, 1]``.

    ``target`` has the input's shape, ``weight`` broadcasts against it. Logarithms are not taken
    below -100, so that the loss stays finite. Raises ``ShapeError`` where the shapes differ, and
    ``ArgumentError`` for what is no probability, NaN among them.
    """
    _same_shapes(input, target)
    _check_probabilities("input", input)
    _check_probabilities("target", target)
    positive, negative = _clamped_logs(input)
    loss = -(target * positive + (1 - target) * negative)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def _check_probabilities(name: str, x: Tensor) -> None:
    if not x.numel() or x.device.type == "meta":
        return
    if any_true(((x >= 0) & (x <= 1)).logical_not()):  # of NaN neither holds
        raise ArgumentError(
            f"all elements of {name} must be between 0 and 1",
            fix="use binary_cross_entropy_with_logits for logits"
            if name == "input"
            else "give probabilities, or 0 and 1",
        )


def _clamped_logs(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.log().clamp_min(-100), (-x).log1p().clamp_min(-100)


def _bce_scale(grad: Any, input: Any, weight: Any, reduction: Any) -> Any:
    scale = grad / max(input.numel(), 1) if reduction == "mean" else grad
    return scale if weight is None else scale * weight


def _bce_input_grad(grad: Any, input: Any, target: Any, weight: Any, reduction: Any) -> Any:
    # The clamp keeps the gradient finite at 0 and 1, as PyTorch does.
    slope = (input - target) / (input * (1 - input)).clamp_min(1e-12)
    return slope * _bce_scale(grad, input, weight, reduction)


def _bce_target_grad(grad: Any, input: Any, weight: Any, reduction: Any) -> Any:
    positive, negative = _clamped_logs(input)
    return (negative - positive) * _bce_scale(grad, input, weight, reduction)


binary_cross_entropy.vjp(
    input=_bce_input_grad,
    target=_bce_target_grad,
    weight=no_gradient("binary_cross_entropy", "weight"),
)


@composite(
    takes="float", reference=bce_with_logits_reference, samples=logit_samples, **LOSS_METADATA
)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """:func:`binary_cross_entropy` of ``sigmoid(input)``, without overflow.

    ``pos_weight`` multiplies the loss of positive targets and broadcasts against them.
    """
    _same_shapes(input, target)
    log_sigmoid = lazy.logsigmoid(input)
    if pos_weight is None:
        loss = (1 - target) * input - log_sigmoid
    else:
        loss = (1 - target) * input - ((pos_weight - 1) * target + 1) * log_sigmoid
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def _logits_input_grad(
    grad: Any, input: Any, target: Any, weight: Any, reduction: Any, pos_weight: Any
) -> Any:
    if pos_weight is None:
        slope = input.sigmoid() - target
    else:
        slope = 1 - target - ((pos_weight - 1) * target + 1) * lazy.neg(input).sigmoid()
    return slope * _bce_scale(grad, input, weight, reduction)


def _logits_target_grad(
    grad: Any, input: Any, target: Any, weight: Any, reduction: Any, pos_weight: Any
) -> Any:
    slope = -input
    if pos_weight is not None:
        slope = slope - (pos_weight - 1) * lazy.logsigmoid(input)
    return slope * _bce_scale(grad, input, weight, reduction)


def _logits_weight_grad(
    grad: Any, input: Any, target: Any, weight_shape: Any, reduction: Any, pos_weight: Any
) -> Any:
    loss = binary_cross_entropy_with_logits(input, target, None, "none", pos_weight)
    return lazy.sum_to_size(loss * _bce_scale(grad, input, None, reduction), weight_shape)


def _pos_weight_grad(
    grad: Any, input: Any, target: Any, weight: Any, reduction: Any, pos_weight_shape: Any
) -> Any:
    each = -target * lazy.logsigmoid(input) * _bce_scale(grad, input, weight, reduction)
    return lazy.sum_to_size(each, pos_weight_shape)


binary_cross_entropy_with_logits.vjp(
    input=_logits_input_grad,
    target=_logits_target_grad,
    weight=_logits_weight_grad,
    pos_weight=_pos_weight_grad,
)


@composite(
    takes="float", reference=multilabel_reference, samples=multilabel_samples, **LOSS_METADATA
)
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Binary cross entropy with logits, averaged over the classes (the last dimension)."""
    _same_shapes(input, target)
    x, y = wide(input), wide(target)  # sums of half precision lose digits
    loss = (1 - y) * x - lazy.logsigmoid(x)
    loss = reduce_loss((loss if weight is None else loss * weight).mean(-1), reduction)
    return narrow(loss, input) if dtype_of(input) is dtype_of(target) else loss
