"""Attention with dropout, as a function of a seed: what is dropped can be computed anew.

Whether a weight is kept follows from the seed and from where the weight is, by the last steps of
MurmurHash3 (Appleby, 2011), so that a kernel needs no matrix of all queries and keys to know it:
not in the forward pass, and not for gradients, which compute the weights anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.nn.attention import (
    _ATTENTION,
    _backward_reference,
    _read,
    _samples,
    attended,
    gradients,
    of_mask,
    reference_weights,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import same
from coredispatch.ops.support.samples import Sample
from coredispatch.ops.support.tolerance import Tolerance
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError

__all__ = ["attention_dropout", "attention_dropout_backward"]

#: Scores are products of two numbers: far from zero the largest of them is all that there is, and
#: what is dropped decides between 0 and it. What stays is raised, twofold and more: more cancels in
#: its gradients.
_RAISED = Tolerance("conditioned", 8.0)
_DECLARED: dict[str, Any] = {**_ATTENTION, "values": (-4.0, 4.0), "tolerance": _RAISED}
_WORD, _GOLDEN = 0xFFFFFFFF, 0x9E3779B9


def _mixed(x: Any, between: Any = 0) -> Any:
    """The last steps of MurmurHash3 of words in int64, with ``between`` in their middle."""
    x = x ^ (x >> 16)
    x = (x * 0x85EBCA6B & _WORD) ^ between
    x = x ^ (x >> 13)
    x = x * 0xC2B2AE35 & _WORD
    return x ^ (x >> 16)


def _kept(lines: Any, columns: Any, seed: Any, p: float) -> Any:
    """Which weights stay, from the numbers of their queries ``(N, 1)`` and keys ``(1, S)``."""
    one = _mixed((lines & _WORD) ^ (seed[0] & _WORD))
    two = _mixed((lines * _GOLDEN & _WORD) ^ (seed[1] & _WORD))
    words = _mixed((columns * _GOLDEN + one) & _WORD, two)
    return words > max(1, round(p * 4294967296.0)) - 1


def _rise(p: float) -> float:
    """What is kept is multiplied by this."""
    return 1 / (1 - p) if p < 1 else 0.0


def _require(seed: Any, p: float) -> None:
    if not 0 < p <= 1:
        raise ArgumentError(
            f"weights are dropped with a probability above 0 and up to 1, got {p}",
            fix="use attention without dropout for 0",
        )
    if seed.dtype.name != "int64":
        raise DTypeError(f"a seed of {seed.dtype.name}, expected int64", fix="draw it by randint")
    if tuple(seed.shape) != (2,):
        raise ShapeError(f"a seed of shape {tuple(seed.shape)}, expected (2,)", fix="give two")


def _dropping(seed: Tensor, p: float) -> Callable[..., list[Tensor]]:
    """What makes of scores ``(*, L, S)`` those that are dropped 0 and raises the others."""

    def drop(*scores: Tensor) -> list[Tensor]:
        lead, device = tuple(scores[0].shape), scores[0].device
        lines = lazy.arange(prod(lead[:-1]), device=device).reshape(-1, 1)
        columns = lazy.arange(lead[-1], device=device).reshape(1, -1)
        lost = lazy.logical_not(_kept(lines, columns, seed, p)).reshape(lead)
        return [(x * _rise(p)).masked_fill(lost, 0) for x in scores]

    return drop


def _dropped_reference(weights: Any, seed: Any, p: float) -> Any:
    lines = np.arange(prod(weights.shape[:-1])).reshape(-1, 1)
    kept = _kept(lines, np.arange(weights.shape[-1]).reshape(1, -1), seed, p)
    return weights * kept.reshape(weights.shape) * _rise(p)


def _reference(
    query: Any, key: Any, value: Any, attn_mask: Any, seed: Any, dropout_p: float,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    key, value = (np.repeat(x, groups, -3) if groups > 1 else x for x in (key, value))
    weights = reference_weights(query, key, attn_mask, is_causal, scale)
    return _dropped_reference(weights, seed, dropout_p) @ value


def _seeded(make: Any) -> Iterator[Sample]:
    for number, sample in enumerate(_samples(make)):
        query, key, value, *rest = sample.args
        mask, causal = (rest[0] if rest else None), (rest[2] if len(rest) > 2 else False)
        p = (0.5, 0.3, 1.0)[number % 3]
        yield Sample(query, key, value, mask, make.index((2,), 1 << 32), p, causal, **sample.kwargs)


@composite(reference=_reference, samples=_seeded, **_DECLARED)
def attention_dropout(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    seed: Tensor,
    dropout_p: float,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """:func:`attention` whose weights are dropped with probability ``dropout_p``.

    ``seed`` is an int64 tensor of two numbers, of which 32 bits each count: the same seed drops the
    same weights, on every device. Weights are numbered by their place in ``(*, L, S)``; those that
    stay are divided by ``1 - dropout_p``.

    Raises:
        ArgumentError: the probability is not above 0 and up to 1
        DTypeError, ShapeError: the seed is not two int64

    >>> seed = cd.randint(0, 2**32, (2,))
    >>> cd.ops.attention_dropout(q, k, v, None, seed, 0.1)
    """
    _require(seed, dropout_p)
    drop = _dropping(seed, dropout_p)
    return attended(query, key, value, attn_mask, is_causal, scale, enable_gqa, drop)


@attention_dropout.vjp
def _(grad, query, key, value, attn_mask, seed, dropout_p, is_causal, scale, enable_gqa):
    key = _read(key, attn_mask)
    given, options = (grad, query, key, value, attn_mask), (is_causal, scale, enable_gqa)
    found = attention_dropout_backward(*given, seed, dropout_p, *options)
    drop = _dropping(seed, dropout_p)
    return (*found, lambda: of_mask(*given, *options, drop), None)


def _backward_samples(make: Any) -> Iterator[Sample]:
    for sample in _seeded(make):
        query, _, value = sample.args[:3]
        grad = make((*query.shape[:-1], value.shape[-1]))
        yield Sample(grad, *sample.args, **sample.kwargs)


def _seeded_backward(
    grad: Any, query: Any, key: Any, value: Any, attn_mask: Any, seed: Any, dropout_p: float,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """The chain rule through dropout and the softmax, on whole matrices."""
    drop = partial(_dropped_reference, seed=seed, p=dropout_p)
    return _backward_reference(
        grad, query, key, value, attn_mask, is_causal, scale, enable_gqa, drop
    )


@composite(
    out=lambda grad, query, key, value, *_: [tuple(x.shape) for x in (query, key, value)],
    dtype=lambda grad, query, key, value, *_: tuple(same(x) for x in (query, key, value)),
    reference=_seeded_backward,
    samples=_backward_samples,
    **_DECLARED,
)
def attention_dropout_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    seed: Tensor,
    dropout_p: float,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of :func:`attention_dropout`: of the query, the key and the value."""
    _require(seed, dropout_p)
    drop = _dropping(seed, dropout_p)
    return gradients(grad, query, key, value, attn_mask, is_causal, scale, enable_gqa, drop)
