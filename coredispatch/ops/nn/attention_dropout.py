"""Attention with dropout, as a function of a seed: what is dropped can be computed anew.

Whether a weight is kept follows from the seed and from where the weight is, by the last steps of
MurmurHash3 (Appleby, 2011), so that a kernel needs no matrix of all queries and keys to know it:
not in the forward pass, and not for gradients, which compute the weights anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.nn.attention import (
    _ATTENTION,
    _factor,
    _groups,
    _hidden,
    _plain_reference,
    _reached,
    _read,
    _samples,
    _weights,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError

__all__ = ["attention_dropout", "attention_dropout_backward"]

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


def _dropped(seed: Tensor, p: float, query: Tensor, *scores: Tensor) -> list[Tensor]:
    """``scores`` ``(*, L, S)``, those that are dropped 0 and the others raised."""
    lead, device = tuple(scores[0].shape), query.device
    lines = lazy.arange(prod(lead[:-1]), device=device).reshape(-1, 1)
    columns = lazy.arange(lead[-1], device=device).reshape(1, -1)
    lost = lazy.logical_not(_kept(lines, columns, seed, p)).reshape(lead)
    return [(x * _rise(p)).masked_fill(lost, 0) for x in scores]


def _dropped_reference(weights: Any, seed: Any, p: float) -> Any:
    lines = np.arange(prod(weights.shape[:-1])).reshape(-1, 1)
    kept = _kept(lines, np.arange(weights.shape[-1]).reshape(1, -1), seed, p)
    return weights * kept.reshape(weights.shape) * _rise(p)


def _all_weights(query: Any, key: Any, mask: Any, causal: bool, scale: Any, groups: int) -> Any:
    """The weights of keys, as the plain reference has them, of keys that are repeated already."""
    identity = np.eye(key.shape[-2], dtype=np.result_type(query))
    whole = np.broadcast_to(identity, (*key.shape[:-1], key.shape[-2]))
    return _plain_reference(query, key, whole, mask, causal, scale)


def _reference(
    query: Any, key: Any, value: Any, attn_mask: Any, seed: Any, dropout_p: float,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    key, value = (np.repeat(x, groups, -3) if groups > 1 else x for x in (key, value))
    weights = _all_weights(query, key, attn_mask, is_causal, scale, groups)
    return _dropped_reference(weights, seed, dropout_p) @ value


def _seeded(make: Any) -> Iterator[Sample]:
    for number, sample in enumerate(_samples(make)):
        query, key, value, *rest = sample.args
        mask, causal = (rest[0] if rest else None), (rest[2] if len(rest) > 2 else False)
        p = (0.5, 0.3, 1.0)[number % 3]
        yield Sample(query, key, value, mask, make.index((2,), 1 << 32), p, causal, **sample.kwargs)


@composite(reference=_reference, samples=_seeded, **_ATTENTION)
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
    groups, factor = _groups(query, key, enable_gqa), _factor(query, scale)
    if is_causal:
        key, value = (_reached(x, query) for x in (key, value))
    if groups > 1:
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    weights, alone = _weights(query, key, attn_mask, is_causal, factor)
    (weights,) = _dropped(seed, dropout_p, query, weights)
    found: Tensor = weights.matmul(value)
    return found if alone is None else found.masked_fill(alone, 0)


@attention_dropout.vjp
def _(grad, query, key, value, attn_mask, seed, dropout_p, is_causal, scale, enable_gqa):
    key = _read(key, attn_mask)
    given = (grad, query, key, value, attn_mask, seed, dropout_p, is_causal, scale, enable_gqa)
    return (*attention_dropout_backward(*given), lambda: _of_mask(*given), None)


def _of_mask(
    grad: Any, query: Any, key: Any, value: Any, attn_mask: Any, seed: Any, p: float,
    is_causal: bool, scale: Any, enable_gqa: bool,
) -> Any:  # fmt: skip
    groups = _groups(query, key, enable_gqa)
    if groups > 1:
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    weights, alone = _weights(query, key, attn_mask, is_causal, _factor(query, scale))
    weights, grad = _hidden(alone, weights, grad)
    (of_weights,) = _dropped(seed, p, query, grad.matmul(value.mT))
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, True))
    return of_scores.sum_to_size(attn_mask.shape)


def _backward_samples(make: Any) -> Iterator[Sample]:
    for sample in _seeded(make):
        query, _, value = sample.args[:3]
        grad = make((*query.shape[:-1], value.shape[-1]))
        yield Sample(grad, *sample.args, **sample.kwargs)


def _backward_reference(
    grad: Any, query: Any, key: Any, value: Any, attn_mask: Any, seed: Any, dropout_p: float,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """The chain rule through dropout and the softmax, on whole matrices."""
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    wide_key, wide_value = (np.repeat(x, groups, -3) if groups > 1 else x for x in (key, value))
    factor = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    weights = _all_weights(query, wide_key, attn_mask, is_causal, scale, groups)
    of_weights = _dropped_reference(grad @ np.swapaxes(wide_value, -1, -2), seed, dropout_p)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True))
    of_key = np.swapaxes(of_scores, -1, -2) @ query * factor
    of_value = np.swapaxes(_dropped_reference(weights, seed, dropout_p), -1, -2) @ grad
    if groups > 1:
        lead = (*key.shape[:-3], key.shape[-3], groups)
        of_key = of_key.reshape(*lead, *of_key.shape[-2:]).sum(-3)
        of_value = of_value.reshape(*lead, *of_value.shape[-2:]).sum(-3)
    return of_scores @ wide_key * factor, of_key, of_value


@composite(
    out=lambda grad, query, key, value, *_: [tuple(x.shape) for x in (query, key, value)],
    dtype=lambda grad, query, key, value, *_: tuple(same(x) for x in (query, key, value)),
    reference=_backward_reference,
    samples=_backward_samples,
    **_ATTENTION,
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
    groups, factor = _groups(query, key, enable_gqa), _factor(query, scale)
    inputs, missing = (query, key, value), 0
    if is_causal:
        missing = key.shape[-2]
        key, value = (_reached(x, query) for x in (key, value))
        missing -= key.shape[-2]
    grad, query, key, value = (wide(x) for x in (grad, query, key, value))
    if groups > 1:
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    mask = attn_mask if attn_mask is None else wide(attn_mask)
    weights, alone = _weights(query, key, mask, is_causal, factor)
    weights, grad, query = _hidden(alone, weights, grad, query)
    of_weights, left = _dropped(seed, dropout_p, query, grad.matmul(value.mT), weights)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, True)) * factor
    found = [of_scores.matmul(key)]
    for x, y in ((of_scores, query), (left, grad)):
        gradient = x.mT.matmul(y)
        if groups > 1:
            gradient = gradient.unflatten(-3, (gradient.shape[-3] // groups, groups)).sum(-3)
        if missing:
            gradient = lazy.pad(gradient, (0, 0, 0, missing))
        found.append(gradient)
    of_query, of_key, of_value = (
        narrow(x.sum_to_size(like.shape), like) for x, like in zip(found, inputs)
    )
    return of_query, of_key, of_value
