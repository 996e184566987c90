"""Scaled dot product attention."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import conditioned
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, ShapeError


def _reference(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    """Softmax of the scaled products, row by row."""
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, repeats, -3), np.repeat(value, repeats, -3)
    factor = 1 / sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ np.swapaxes(key, -1, -2) * factor
    if is_causal:
        attn_mask = np.tril(np.ones(scores.shape[-2:], bool))
    if attn_mask is not None:
        if attn_mask.dtype == bool:
            scores = np.where(attn_mask, scores, -np.inf)
        else:
            scores = scores + attn_mask
    greatest = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(greatest > -np.inf, greatest, 0))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total > 0, total, 1) @ value


def _samples(make: Any) -> Iterator[Sample]:
    """Causal, masked both ways, scaled, grouped, and with lengths that differ."""
    for lead in ((2,), (2, 3)):
        q, k, v = make((*lead, 5, 4)), make((*lead, 7, 4)), make((*lead, 7, 3))
        yield Sample(q, k, v)
        yield Sample(q, k, v, None, 0.0, True)
        yield Sample(q, k, v, make((5, 7)))
        mask = make.mask((5, 7))
        mask[:, 0] = True
        mask[2] = False  # a query to which no key belongs
        yield Sample(q, k, v, mask, scale=0.3)
    yield Sample(make((2, 4, 5, 4)), make((2, 2, 5, 4)), make((2, 2, 5, 4)), enable_gqa=True)


@composite(
    cast="lower",
    reference=_reference,
    samples=_samples,
    dtypes="float",
    tolerance=conditioned,
    namespace="nn.functional",
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key^T * scale + mask) @ value`` over the last two dimensions.

    ``query`` is ``(*, L, E)``, ``key`` ``(*, S, E)``, ``value`` ``(*, S, V)``; the result is
    ``(*, L, V)``. A bool ``attn_mask`` marks the keys that take part, a floating one is added;
    ``is_causal`` is the lower triangle. ``scale`` is ``1 / sqrt(E)`` unless given. Dropout is
    applied whenever ``dropout_p`` is above 0. A query without any key gives 0. ``enable_gqa``
    repeats the heads (dimension -3) of key and value to those of query. Vaswani et al.,
    "Attention Is All You Need", 2017.
    """
    if is_causal and attn_mask is not None:
        raise ArgumentError("attn_mask and is_causal=True", fix="give one of them")
    if enable_gqa and query.ndim > 2:
        heads, shared = query.shape[-3], key.shape[-3]
        if not shared or heads % shared:
            raise ShapeError(
                f"{heads} query heads are no multiple of {shared} key heads", fix="use a multiple"
            )
        key = key.repeat_interleave(heads // shared, -3)
        value = value.repeat_interleave(heads // shared, -3)
    features = query.shape[-1]
    if scale is None and not features:
        raise ShapeError(
            f"a query of shape {tuple(query.shape)} has no features to scale by",
            fix="give features, or a scale",
        )
    factor = 1 / sqrt(features) if scale is None else scale
    scores = (query * factor).matmul(key.mT)
    if is_causal:
        rows = lazy.arange(scores.shape[-2], device=scores.device)
        columns = lazy.arange(scores.shape[-1], device=scores.device)
        attn_mask = columns.unsqueeze(0) <= rows.unsqueeze(1)
    alone = None  # queries without a key: they attend to all, and what they find is dropped
    if attn_mask is not None:
        if attn_mask.dtype.name == "bool":
            if not is_causal:
                alone = ~lazy.any(attn_mask, -1, True)
                attn_mask = attn_mask | alone
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        else:
            alone = lazy.all(attn_mask == float("-inf"), -1, True)
            scores = scores + attn_mask.masked_fill(alone, 0)
    weights = lazy.softmax(scores, -1)
    if dropout_p > 0:
        weights = lazy.dropout(weights, dropout_p, True)
    attended = weights.matmul(value)
    return attended if alone is None else attended.masked_fill(alone, 0)
