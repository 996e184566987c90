"""Connectionist temporal classification. Graves et al., ICML 2006."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.inspection import greatest
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import conditioned, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite

_INF = float("inf")


# ---- the reference: one path position at a time -----------------------------------------------


def _extended(target: Any, length: int, blank: int) -> list[int]:
    """The labels with blanks around each."""
    labels = [blank]
    for label in target[:length]:
        labels += [int(label), blank]
    return labels


def _split(targets: Any, lengths: Any) -> Any:
    """The target of each sample, first in its row."""
    return targets if targets.ndim == 2 else np.split(targets, np.cumsum(lengths)[:-1])


def _forward(log_probs: Any, labels: list[int], steps: int, blank: int) -> Any:
    """``alpha[t, s]``: the log probability of all paths to label ``s`` at step ``t``."""
    alpha = np.full((steps, len(labels)), -np.inf)
    for t in range(steps):
        for s, label in enumerate(labels):
            if not t and s > 1:  # a path begins with the first blank or label
                continue
            before = [alpha[t - 1, s]] if t else [0.0]
            if t and s > 0:
                before.append(alpha[t - 1, s - 1])
            if t and s > 1 and label not in (blank, labels[s - 2]):
                before.append(alpha[t - 1, s - 2])
            alpha[t, s] = np.logaddexp.reduce(before) + log_probs[t, label]
    return alpha


def _ctc_reference(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0
) -> Any:
    losses, rows = [], _split(targets, target_lengths)
    for n, (steps, length) in enumerate(zip(input_lengths, target_lengths)):
        labels = _extended(rows[n], length, blank)
        alpha = _forward(log_probs[:, n], labels, steps, blank)
        last = alpha[-1, -2:] if steps else np.array([0.0 if length == 0 else -np.inf])
        losses.append(-np.logaddexp.reduce(last))
    return np.array(losses)


def _ctc_backward_reference(
    grad: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: Any
) -> Any:
    result, rows = np.zeros(log_probs.shape), _split(targets, target_lengths)
    for n, (steps, length) in enumerate(zip(input_lengths, target_lengths)):
        labels = _extended(rows[n], length, blank)
        own = log_probs[:steps, n]
        alpha = _forward(own, labels, steps, blank)
        beta = _forward(own[::-1], labels[::-1], steps, blank)[::-1, ::-1]
        total = np.logaddexp.reduce(alpha[-1, -2:])
        result[:steps, n] = np.exp(own)
        for s, label in enumerate(labels):
            result[:steps, n, label] -= np.exp(alpha[:, s] + beta[:, s] - own[:, label] - total)
        result[:, n] *= grad[n]
    return result


def _problems(make: Any) -> Iterator[Any]:
    """Log probabilities, targets with repeated labels, and lengths of which one is 0."""
    lengths = np.array([6, 5]), np.array([3, 2])
    yield make((6, 2, 4)), np.array([[1, 1, 2], [3, 1, 0]]), *lengths, 0
    yield make((6, 2, 4)), np.array([[0, 2, 2], [1, 0, 1]]), *lengths, 3
    yield make((6, 2, 4)), np.array([[0, 0, 2], [0, 1, 0]]), lengths[0], np.array([3, 3]), 3
    yield make((4, 2, 3)), np.array([[1], [1]]), np.array([4, 3]), np.array([1, 0]), 0
    yield make((6, 2, 4)), np.array([1, 1, 2, 3, 1]), *lengths, 0


def _ctc_samples(make: Any) -> Iterator[Sample]:
    for problem in _problems(make):
        yield Sample(*problem)


def _ctc_backward_samples(make: Any) -> Iterator[Sample]:
    for problem in _problems(make):
        yield Sample(make((2,)), *problem)


# ---- the definition ---------------------------------------------------------------------------


def _labels(log_probs: Tensor, targets: Tensor, target_lengths: Tensor, blank: int) -> Any:
    """Labels with blanks around ``(N, L)``, their emissions ``(T, N, L)``, what may be skipped.

    A path may go from a label to the next but one where that is another label, and no blank.
    """
    steps, batch, _ = log_probs.shape
    at = log_probs.device
    if targets.ndim == 1:
        targets = _rows(targets, target_lengths, blank)
    if not targets.shape[1]:
        targets = lazy.full((batch, 1), blank, dtype="int64", device=at)
    blanks = lazy.full_like(targets, blank)
    labels = lazy.stack([blanks, targets], 2).reshape(batch, -1)
    labels = lazy.cat([labels, blanks[:, :1]], 1)
    place = lazy.arange(labels.shape[1], device=at)
    labels = labels.masked_fill(place > 2 * target_lengths.unsqueeze(1), blank)
    emitted = log_probs.gather(2, labels.unsqueeze(0).expand(steps, batch, -1))
    skipped = (labels[:, 2:] != labels[:, :-2]) & (labels[:, 2:] != blank)
    return labels, emitted, skipped


def _rows(targets: Tensor, lengths: Tensor, blank: int) -> Any:
    """Targets that stand one after the other as padded rows ``(N, S)``."""
    longest = int(greatest(lengths)) if lengths.numel() else 0
    place = lazy.arange(longest, device=targets.device)
    inside = place < lengths.unsqueeze(1)
    if not targets.numel():
        return lazy.full(tuple(inside.shape), blank, dtype="int64", device=targets.device)
    number = (lengths.cumsum(0) - lengths).unsqueeze(1) + place
    return targets[number.masked_fill(~inside, 0)].masked_fill(~inside, blank)


def _sum3(stay: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """``log(exp a + exp b + exp c)``; of nothing but zeros it is minus infinity."""
    three = lazy.stack([stay, one, two])
    top = three.detach().amax(0)
    dead = top == -_INF
    finite = top.masked_fill(dead, 0)
    total = (three - finite).exp().sum(0).masked_fill(dead, 1).log() + finite
    return total.masked_fill(dead, -_INF)


def _alphas(emitted: Tensor, skipped: Tensor, input_lengths: Tensor) -> list[Tensor]:
    """The forward variables of every step; after its last step a sample's stay as they are."""
    batch, width = emitted.shape[1:]
    none = lazy.full((batch, width), -_INF, dtype=emitted.dtype, device=emitted.device)
    alpha = lazy.cat([emitted[0, :, :2], none[:, 2:]], 1)
    rows = [alpha]
    for t in range(1, emitted.shape[0]):
        one = lazy.cat([none[:, :1], alpha[:, :-1]], 1)
        two = lazy.cat([none[:, :2], alpha[:, :-2].masked_fill(~skipped, -_INF)], 1)
        onward = _sum3(alpha, one, two) + emitted[t]
        alpha = lazy.where((input_lengths > t).unsqueeze(1), onward, alpha)
        rows.append(alpha)
    return rows


def _betas(
    emitted: Tensor, skipped: Tensor, input_lengths: Tensor, target_lengths: Tensor
) -> list[Tensor]:
    """The backward variables of every step, without what that step emits."""
    steps, batch, width = emitted.shape
    none = lazy.full((batch, width), -_INF, dtype=emitted.dtype, device=emitted.device)
    place = lazy.arange(width, device=emitted.device)
    last = 2 * target_lengths.unsqueeze(1)
    ends = none.masked_fill((place == last) | (place == last - 1), 0)
    beta = none
    rows = []
    for t in reversed(range(steps)):
        if t < steps - 1:
            onward = beta + emitted[t + 1]
            one = lazy.cat([onward[:, 1:], none[:, :1]], 1)
            two = lazy.cat([onward[:, 2:].masked_fill(~skipped, -_INF), none[:, :2]], 1)
            beta = _sum3(onward, one, two)
        beta = lazy.where((input_lengths == t + 1).unsqueeze(1), ends, beta)
        rows.append(beta)
    return rows[::-1]


def _loss(alpha: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    last = (2 * target_lengths).unsqueeze(1)
    blank = alpha.gather(1, last)
    label = alpha.gather(1, (last - 1).clamp_min(0)).masked_fill(last == 0, -_INF)
    loss = -_sum3(blank, label, label.detach().masked_fill(label == label, -_INF)).squeeze(1)
    empty = lazy.where(target_lengths == 0, 0.0, _INF).to(loss.dtype)
    return lazy.where(input_lengths == 0, empty, loss)


@composite(
    out=lambda log_probs, *_: (log_probs.shape[1],),
    dtype=same,
    reference=_ctc_reference,
    samples=_ctc_samples,
    dtypes="float",
    cast="float32",
    tolerance=conditioned,
    unbroadcast=False,
    gradcheck=lambda log_probs, *rest: lazy.ctc_nll(lazy.log_softmax(log_probs, 2), *rest),
    namespace=(),
)
def ctc_nll(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
) -> Tensor:
    """Negative log likelihood of each target under connectionist temporal classification, ``(N,)``.

    ``log_probs`` is ``(T, N, C)``, ``targets`` ``(N, S)`` (what lies beyond a target's length does
    not count) or all of them one after the other, lengths are ``(N,)``. Infinite for a target that
    does not fit its input. As in PyTorch the gradient is the one before the ``log_softmax`` that
    made ``log_probs``.
    """
    probabilities = wide(log_probs)
    _, emitted, skipped = _labels(probabilities, targets, target_lengths, blank)
    alpha = _alphas(emitted, skipped, input_lengths)[-1]
    return narrow(_loss(alpha, input_lengths, target_lengths), log_probs)


@composite(
    out=lambda grad_output, log_probs, *_: tuple(log_probs.shape),
    dtype=lambda grad_output, log_probs, *_: log_probs.dtype,
    reference=_ctc_backward_reference,
    samples=_ctc_backward_samples,
    dtypes="float",
    tolerance=conditioned,
    unbroadcast=False,
    namespace=(),
)
def ctc_nll_backward(
    grad_output: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
) -> Tensor:
    """Gradient of :func:`ctc_nll`: ``exp(log_probs)`` less each label's share in the paths.

    0 where ``grad_output`` is, also for infinite losses.
    """
    probabilities = wide(log_probs)
    labels, emitted, skipped = _labels(probabilities, targets, target_lengths, blank)
    rows = _alphas(emitted, skipped, input_lengths)
    loss = _loss(rows[-1], input_lengths, target_lengths)
    betas = _betas(emitted, skipped, input_lengths, target_lengths)
    shares = (lazy.stack(rows) + lazy.stack(betas) + loss.unsqueeze(1)).exp()
    steps, batch, _ = emitted.shape
    place = labels.unsqueeze(0).expand(steps, batch, -1)
    paths = lazy.zeros_like(probabilities).scatter_add(2, place, shares)
    grad = wide(grad_output).unsqueeze(1)
    step = lazy.arange(steps, device=log_probs.device).unsqueeze(1)
    beyond = step >= input_lengths.unsqueeze(0)
    result = (probabilities.exp() - paths) * grad
    return narrow(result.masked_fill(beyond.unsqueeze(2) | (grad == 0), 0), log_probs)


def _gradient(
    grad: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: Any
) -> Any:
    return ctc_nll_backward(grad, log_probs, targets, input_lengths, target_lengths, blank)


ctc_nll.vjp(log_probs=_gradient)
