"""Loss functions that are more than one operator: CTC, and cross entropy of a linear map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.creation import tensor
from coredispatch.frontend.tensor import Tensor
from coredispatch.ops.loss.regression import check_margin
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import int64
from coredispatch.registry.model.errors import ArgumentError

__all__ = ["ctc_loss", "linear_cross_entropy", "triplet_margin_with_distance_loss"]

_op = TABLE.operator


def _reduced(loss: Any, reduction: str) -> Any:
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ArgumentError(f"reduction={reduction!r}", fix="use 'mean', 'sum' or 'none'")
    return loss.mean() if reduction == "mean" else loss.sum()


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """:func:`triplet_margin_loss` with any distance."""
    check_margin(margin)
    distance = distance_function or _op("pairwise_distance")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    loss: Tensor = _reduced((near - far + margin).clamp_min(0), reduction)
    return loss


def _lengths(name: str, lengths: Any, batch: int, most: int, device: Any) -> Tensor:
    """Lengths of ``batch`` samples as a tensor, whose values are checked when the loss is."""
    if isinstance(lengths, Tensor):
        if lengths.dtype.kind not in "iu":
            raise RuntimeError(f"{name} must be integral")
        found = lengths.reshape(-1).to(device).long()
    else:
        numbers = [lengths] if isinstance(lengths, int) else lengths
        found = tensor([int(n) for n in numbers], dtype=int64, device=device)
    if found.shape[0] != batch:
        raise RuntimeError(f"{name} must be of size batch_size")
    checked: Tensor = _op("checked")(found, found, 0, most, name)
    return checked


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification. Graves et al., ICML 2006.

    ``log_probs`` is ``(T, N, C)`` or ``(T, C)``, after ``log_softmax``; ``targets`` ``(N, S)``,
    padded, or all targets one after the other. ``"mean"`` divides each loss by its target's length
    first. ``zero_infinity`` makes infinite losses, of targets that do not fit, and their gradients
    0. Raises ``RuntimeError`` for lengths that do not fit, and for a blank that is no class.

    >>> x = cd.randn(50, 16, 20).log_softmax(2)
    >>> y = cd.randint(1, 20, (16, 30))
    >>> F.ctc_loss(x, y, [50] * 16, [30] * 16)
    """
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(f"log_probs must be (T, N, C) or (T, C), got {log_probs.ndim} dims")
    if targets.dtype.kind not in "iu":
        raise RuntimeError(f"targets must be integral, got {targets.dtype}")
    batched = log_probs.ndim == 3
    x: Any = log_probs if batched else log_probs.unsqueeze(1)
    steps, batch, classes = x.shape
    if not batched:
        targets = targets.reshape(1, -1)
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    own = _lengths("input_lengths", input_lengths, batch, steps, x.device)
    labels = targets.to(x.device).long()
    if labels.ndim not in (1, 2):
        raise RuntimeError("targets must be (N, S), or (sum(target_lengths),)")
    if labels.ndim == 2 and labels.shape[0] != batch:
        raise RuntimeError(
            f"Expected tensor to have size {batch} at dimension 0, but got size "
            f"{list(labels.shape)} for argument targets"
        )
    most = labels.shape[-1]
    whole = _lengths("target_lengths", target_lengths, batch, most, x.device)
    if labels.ndim == 1:
        whole = _op("checked")(whole, whole.sum(), most, most, "labels")
    else:  # a padding value may be any number: it is no class
        inside = _op("arange")(most, device=x.device) < whole.unsqueeze(1)
        labels = labels.masked_fill(~inside, blank)
    loss = _op("ctc_nll")(x, labels, own, whole, blank)
    if zero_infinity:
        loss = loss.masked_fill(loss == float("inf"), 0)
    if reduction == "mean":
        mean: Tensor = (loss / whole.clamp_min(1)).mean()
        return mean
    reduced: Tensor = _reduced(loss, reduction)
    return reduced if batched or reduction != "none" else reduced.squeeze(0)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """:func:`cross_entropy` of :func:`linear`, for ``input`` ``(N, in_features)`` or 1-d.

    ``linear_weight`` is ``(C, in_features)``, or ``(C, *, in_features)`` for targets ``(N, *)``.
    ``options`` (how PyTorch splits the product into chunks) makes no difference to the result.
    """
    outputs = tuple(linear_weight.shape[:-1])
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    matrix = linear_weight.reshape(-1, linear_weight.shape[-1])
    logits = _op("linear")(input, matrix, bias).reshape(*input.shape[:-1], *outputs)
    index = -100 if ignore_index is None else ignore_index
    loss: Tensor = _op("cross_entropy")(logits, target, weight, index, reduction, label_smoothing)
    return loss
