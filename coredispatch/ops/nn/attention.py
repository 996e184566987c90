"""Scaled dot product attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any

import numpy as np

from coredispatch.ops.nn.dropout import _require_probability
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import conditioned, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import TABLE, composite
from coredispatch.registry.model.dtypes import int64
from coredispatch.registry.model.errors import ArgumentError, ShapeError
from coredispatch.registry.model.sizes import at_least, lesser


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


def _factor(query: Any, scale: float | None) -> float:
    """What scores are multiplied by."""
    features = query.shape[-1]
    if scale is None and not features:
        raise ShapeError(
            f"a query of shape {tuple(query.shape)} has no features to scale by",
            fix="give features, or a scale",
        )
    return 1 / sqrt(features) if scale is None else scale


def _groups(query: Any, key: Any, enable_gqa: bool) -> int:
    """How many heads of the query share one of the key."""
    if not enable_gqa or query.ndim <= 2:
        return 1
    heads, shared = query.shape[-3], key.shape[-3]
    if not shared or heads % shared:
        raise ShapeError(
            f"{heads} query heads are no multiple of {shared} key heads", fix="use a multiple"
        )
    return int(heads // shared)


def _weights(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, factor: float
) -> tuple[Tensor, Tensor | None]:
    """The weights of keys, and which queries have none, whose weights are those of all keys."""
    scores = (query * factor).matmul(key.mT)
    if is_causal:
        rows = lazy.arange(scores.shape[-2], device=scores.device)
        columns = lazy.arange(scores.shape[-1], device=scores.device)
        attn_mask = columns.unsqueeze(0) <= rows.unsqueeze(1)
    alone = None
    if attn_mask is not None:
        if attn_mask.dtype.name == "bool":
            if not is_causal:
                alone = ~lazy.any(attn_mask, -1, True)
                attn_mask = attn_mask | alone
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        else:
            alone = lazy.all(attn_mask == float("-inf"), -1, True)
            scores = scores + attn_mask.masked_fill(alone, 0)
    return lazy.softmax(scores, -1), alone


def _attended(weights: Tensor, value: Tensor, alone: Tensor | None) -> Tensor:
    found: Tensor = weights.matmul(value)
    return found if alone is None else found.masked_fill(alone, 0)


#: from so many queries, and so many scores without a mask, :func:`attention` costs less than the
#: products and the softmax one by one (measured with cpu_numba)
_QUERIES, _SCORES = 16, 4096


def _draws(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: Any, *_: Any) -> bool:
    return bool(dropout_p != 0)


@composite(
    cast="lower",
    reference=_reference,
    samples=_samples,
    dtypes="float",
    tolerance=conditioned,
    random=_draws,
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
    _require_probability(dropout_p)
    plain = attn_mask is None and not is_causal
    rows = query.shape[-2]
    name = "attention_dropout_backward" if dropout_p else "attention_backward"
    if (
        _has_kernel(name, query, key, value, attn_mask, enable_gqa)
        and (is_causal or at_least(rows, _QUERIES))
        and not (plain and not at_least(rows * key.shape[-2], _SCORES))
    ):
        given, options = (query, key, value, attn_mask), (is_causal, scale, enable_gqa)
        if not dropout_p:
            return attention(*given, *options)
        # Drawn in the likeness of the query: where that is divided, all ranks agree on it.
        like = lazy.expand(lazy.getitem(query, (0,) * query.ndim), (2,))
        seed = lazy.randint_like(like, 0, 1 << 32, dtype=int64)
        return lazy.attention_dropout(*given, seed, dropout_p, *options)
    groups, factor = _groups(query, key, enable_gqa), _factor(query, scale)
    if groups > 1:
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    if query.requires_grad:
        key = _read(key, attn_mask)
    weights, alone = _weights(query, key, attn_mask, is_causal, factor)
    if dropout_p:
        weights = lazy.dropout(weights, dropout_p, True)
    return _attended(weights, value, alone)


def _has_kernel(name: str, query: Any, key: Any, value: Any, mask: Any, enable_gqa: bool) -> bool:
    """Whether a backend computes :func:`attention` of these at once, and its gradients by ``name``.

    Without a kernel, weights would be computed twice where gradients are wanted.
    """
    if (name, query.device.type, None) not in TABLE.snapshot.registrations:
        return False
    q, k, v = query.shape, key.shape, value.shape
    if not len(q) == len(k) == len(v) >= 2 or q[-1] != k[-1] or k[:-1] != v[:-1]:
        return False
    if 0 in q or 0 in k or 0 in v:
        return False
    grouped = enable_gqa and q[:-3] == k[:-3] and not q[-3] % k[-3]
    if q[:-2] != k[:-2] and not grouped:
        return False
    if not query.dtype == key.dtype == value.dtype:
        return False
    return mask is None or _fits(mask, query.dtype, (*q[:-1], k[-2]))


def _fits(mask: Any, dtype: Any, shape: tuple[int, ...]) -> bool:
    """Whether a mask wants no gradient, and is for scores of this shape."""
    if mask.dtype.name != "bool" and (mask.requires_grad or mask.dtype != dtype):
        return False
    given = mask.shape
    return len(given) <= len(shape) and all(
        n == 1 or n == m for n, m in zip(reversed(given), reversed(shape))
    )


_ATTENTION: dict[str, Any] = {
    "dtypes": "float",
    "tolerance": conditioned,
    "namespace": (),
    "method": False,
}


def _plain_reference(
    query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **named: Any
) -> Any:
    return _reference(query, key, value, attn_mask, 0.0, *rest, **named)


@composite(
    reference=_plain_reference,
    samples=lambda make: (
        Sample(*(a for i, a in enumerate(s.args) if i != 4), **s.kwargs) for s in _samples(make)
    ),
    **_ATTENTION,
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """:func:`scaled_dot_product_attention` without dropout.

    What it keeps for its gradients are query, key, value and mask: weights are computed anew, so
    that a kernel that has a part of them at a time never holds a matrix of all queries and keys.
    Dao et al., "FlashAttention", 2022.
    """
    return attended(query, key, value, attn_mask, is_causal, scale, enable_gqa)


def all_kept(*tensors: Any) -> list[Any]:
    """What becomes of weights, and of their gradients, where nothing is dropped."""
    return list(tensors)


def attended(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool,
    scale: float | None, enable_gqa: bool, drop: Callable[..., list[Any]] = all_kept,
) -> Tensor:  # fmt: skip
    """``drop(softmax(query @ key^T * scale + mask)) @ value``."""
    groups, factor = _groups(query, key, enable_gqa), _factor(query, scale)
    if is_causal:
        key, value = (_reached(x, query) for x in (key, value))
    if groups > 1:
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    weights, alone = _weights(query, key, attn_mask, is_causal, factor)
    (weights,) = drop(weights)
    return _attended(weights, value, alone)


@attention.vjp
def _(grad, query, key, value, attn_mask, is_causal, scale, enable_gqa):
    key = _read(key, attn_mask)
    given = (grad, query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return (*attention_backward(*given), lambda: of_mask(*given))


def of_mask(
    grad: Any, query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: Any,
    enable_gqa: bool, drop: Callable[..., list[Any]] = all_kept,
) -> Any:  # fmt: skip
    """The gradient of the mask."""
    groups = _groups(query, key, enable_gqa)
    if groups > 1:
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    weights, alone = _weights(query, key, attn_mask, is_causal, _factor(query, scale))
    weights, grad = _hidden(alone, weights, grad)
    (of_weights,) = drop(grad.matmul(value.mT))
    return _of_scores(weights, of_weights).sum_to_size(attn_mask.shape)


def _reached(x: Tensor, query: Tensor) -> Tensor:
    """Keys, or values, without those that come after all queries."""
    own = x.shape[-2]
    length = lesser(own, query.shape[-2])
    return x if length is own else x.narrow(-2, 0, length)


def _read(key: Tensor, attn_mask: Tensor | None) -> Tensor:
    """The keys, 0 where a bool mask hides one from all queries.

    Gradients of queries are products with all keys: 0 times NaN would show what nobody reads.
    """
    if attn_mask is None or attn_mask.dtype.name != "bool":
        return key
    mask = attn_mask.unsqueeze(0) if attn_mask.ndim < 2 else attn_mask
    lead = zip(reversed(mask.shape[:-2]), reversed(key.shape[:-2]), strict=False)
    if mask.ndim > key.ndim or any(n not in (1, m) for n, m in lead):
        return key
    return lazy.where(lazy.any(mask, -2, True).mT, key, 0)


def _hidden(alone: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors with 0 for queries without a key, whose result is 0 whatever there is."""
    return tensors if alone is None else tuple(x.masked_fill(alone, 0) for x in tensors)


def _of_scores(weights: Tensor, of_weights: Tensor) -> Tensor:
    return weights * (of_weights - (of_weights * weights).sum(-1, True))


def _backward_samples(make: Any) -> Iterator[Sample]:
    for sample in _samples(make):
        query, key, value, *rest = sample.args
        shape = (*query.shape[:-1], value.shape[-1])
        rest = [rest[0] if rest else None, *rest[2:]]
        yield Sample(make(shape), query, key, value, *rest, **sample.kwargs)


def _backward_reference(
    grad: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False,
    scale: Any = None, enable_gqa: bool = False, drop: Callable[..., Any] = lambda x: x,
) -> Any:  # fmt: skip
    """The chain rule through the softmax, on whole matrices."""
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    wide_key, wide_value = (np.repeat(x, groups, -3) if groups > 1 else x for x in (key, value))
    factor = 1 / sqrt(query.shape[-1]) if scale is None else scale
    weights = reference_weights(query, wide_key, attn_mask, is_causal, scale)
    of_weights = drop(grad @ np.swapaxes(wide_value, -1, -2))
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True))
    of_key = np.swapaxes(of_scores, -1, -2) @ query * factor
    of_value = np.swapaxes(drop(weights), -1, -2) @ grad
    if groups > 1:
        lead = (*key.shape[:-3], key.shape[-3], groups)
        of_key = of_key.reshape(*lead, *of_key.shape[-2:]).sum(-3)
        of_value = of_value.reshape(*lead, *of_value.shape[-2:]).sum(-3)
    return of_scores @ wide_key * factor, of_key, of_value


def reference_weights(query: Any, key: Any, attn_mask: Any, is_causal: bool, scale: Any) -> Any:
    """The weights, of keys that are repeated already: the reference with values of one each."""
    identity = np.eye(key.shape[-2], dtype=np.result_type(query))
    values = np.broadcast_to(identity, (*key.shape[:-1], key.shape[-2]))
    return _plain_reference(query, key, values, attn_mask, is_causal, scale)


@composite(
    out=lambda grad, query, key, value, *_: [tuple(x.shape) for x in (query, key, value)],
    dtype=lambda grad, query, key, value, *_: tuple(same(x) for x in (query, key, value)),
    reference=_backward_reference,
    samples=_backward_samples,
    **_ATTENTION,
)
def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of :func:`attention`: of the query, the key and the value."""
    return gradients(grad, query, key, value, attn_mask, is_causal, scale, enable_gqa)


def gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None,
    is_causal: bool, scale: float | None, enable_gqa: bool,
    drop: Callable[..., list[Any]] = all_kept,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of :func:`attended`: of the query, the key and the value."""
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
    of_weights, left = drop(grad.matmul(value.mT), weights)
    of_scores = _of_scores(weights, of_weights) * factor
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
