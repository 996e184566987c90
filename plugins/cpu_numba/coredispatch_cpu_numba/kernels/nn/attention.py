"""Attention and its gradients without a matrix of all queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import FLOATS, INT64
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "WHEN"]

_SPLIT = 1 << 16
_ROWS = 64  # as in the loops
#: parts of gradients that there are at least, so that threads share few heads, too
_PARTS = 8
_attention, _backward = (Loop("nn.attention", name, _SPLIT) for name in ("attention", "backward"))
_NO_CHOICE = np.zeros(1, np.bool_)
#: what the loops know of dropout where there is none
_ALL_KEPT = (-1, 1.0, 0, 0)


def _dropping(seed: Any, dropout_p: float) -> Any:
    """Up to which word a weight is dropped, what others are multiplied by, and two seeds.

    None for seeds of another kind: the operator's definition says what is wrong with them.
    """
    if type(seed) is not np.ndarray or seed.shape != (2,) or seed.dtype != INT64:
        return None
    if not 0 < dropout_p <= 1:
        return None
    limit = max(1, round(dropout_p * 4294967296.0)) - 1
    rise = 1 / (1 - dropout_p) if dropout_p < 1 else 0.0
    return limit, rise, *(int(word) & 0xFFFFFFFF for word in seed)


def _mask(mask: Any, lead: tuple[int, ...], queries: int, keys: int, dtype: Any) -> Any:
    """The mask, one for all heads or one for each, and how many; None where it does not fit."""
    if type(mask) is not np.ndarray or mask.dtype not in (dtype, np.bool_) or mask.ndim < 2:
        return None
    heads = () if prod(mask.shape[:-2]) == 1 else lead
    if not heads:
        mask = mask.reshape(mask.shape[-2:])
    try:
        whole = np.broadcast_to(mask, (*heads, queries, keys))
    except ValueError:
        return None
    return np.ascontiguousarray(whole), prod(heads)


def _given(
    query: np.ndarray, key: Any, value: Any, mask: Any, causal: bool, scale: Any, grouped: bool
) -> Any:
    """Arrays, sizes and choices as the loops take them; None where they do not."""
    dtype = query.dtype
    if query.ndim < 2 or (causal and mask is not None):
        return None
    if not all(type(x) is np.ndarray and x.dtype == dtype and x.ndim >= 2 for x in (key, value)):
        return None
    lead, (queries, depth) = query.shape[:-2], query.shape[-2:]
    shared, (keys, columns) = key.shape[:-2], (key.shape[-2], value.shape[-1])
    if key.shape[-1] != depth or value.shape[:-1] != (*shared, keys):
        return None
    groups = 1
    if lead != shared:
        if not grouped or len(lead) != len(shared) or lead[:-1] != shared[:-1]:
            return None
        groups, rest = divmod(lead[-1], shared[-1]) if shared[-1] else (0, 1)
        if rest:
            return None
    if not (prod(lead) and queries and keys and depth and columns):
        return None
    masked, masks, chosen, added = 0, 1, _NO_CHOICE, query.reshape(-1)[:1]
    if mask is not None:
        found = _mask(mask, lead, queries, keys, dtype)
        if found is None:
            return None
        mask, masks = found
        masked = 2 if mask.dtype == np.bool_ else 1
        chosen, added = (mask, added) if masked == 2 else (chosen, mask)
    if causal and keys > queries:  # keys after all queries are not read
        keys, key, value = queries, key[..., :queries, :], value[..., :queries, :]
    factor = 1 / sqrt(depth) if scale is None else float(scale)
    arrays = [np.ascontiguousarray(x) for x in (query, key, value)]
    sizes = (masked, masks, queries, keys, depth, columns, groups)
    return arrays, (chosen, added), sizes, factor


def _attended(given: tuple[Any, ...], dropping: Any, options: tuple[Any, ...]) -> Any:
    query, key = given[:2]
    found = None if dropping is None else _given(*given, *options)
    if found is None:
        return NotImplemented
    arrays, masks, sizes, factor = found
    _, _, queries, keys, depth, columns, _ = sizes
    heads, wanted = prod(query.shape[:-2]), thread_count.wanted
    out = np.empty((*query.shape[:-1], columns), query.dtype)
    parts = 1 if heads >= 2 * wanted else min(-(-queries // _ROWS), -(-2 * wanted // heads))
    work = heads * queries * keys * (depth + columns)
    grain = -(-heads * parts // (2 * wanted))
    last = (parts, int(options[0]), factor, *dropping, out)
    _attention(query.dtype, work, heads * parts, *arrays, *masks, *sizes, *last, grain=grain)
    return out


def _gradients(
    grad: np.ndarray, given: tuple[Any, ...], dropping: Any, options: tuple[Any, ...]
) -> Any:
    query, key, value = given[:3]
    found = None if dropping is None else _given(*given, *options)
    if found is None:
        return NotImplemented
    arrays, masks, sizes, factor = found
    _, _, queries, keys, depth, columns, groups = sizes
    if grad.dtype != query.dtype or grad.shape != (*query.shape[:-1], columns):
        return NotImplemented
    arrays = [np.ascontiguousarray(grad), *arrays]
    shared = prod(key.shape[:-2])
    # The parts are fixed by the shape alone, so that the order of additions is, too.
    parts = min(-(-queries // _ROWS) * groups, -(-_PARTS // shared))
    of_query = np.empty(query.shape, query.dtype)
    of_key, of_value = (np.zeros((shared, parts, keys, n), query.dtype) for n in (depth, columns))
    work = prod(query.shape[:-2]) * queries * keys * (3 * depth + 2 * columns)
    last = (parts, int(options[0]), factor, *dropping, of_query, of_key, of_value)
    grain = -(-shared * parts // (2 * thread_count.wanted))
    _backward(query.dtype, work, shared * parts, *arrays, *masks, *sizes, *last, grain=grain)
    return of_query, _added(of_key, parts, key.shape), _added(of_value, parts, value.shape)


def attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, attn_mask: Any, is_causal: bool,
    scale: float | None, enable_gqa: bool,
) -> Any:  # fmt: skip
    """``softmax(query @ key^T * scale + mask) @ value``."""
    options = (is_causal, scale, enable_gqa)
    return _attended((query, key, value, attn_mask), _ALL_KEPT, options)


def attention_backward(
    grad: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray, attn_mask: Any,
    is_causal: bool, scale: float | None, enable_gqa: bool,
) -> Any:  # fmt: skip
    """Gradients of the query, the key and the value."""
    options = (is_causal, scale, enable_gqa)
    return _gradients(grad, (query, key, value, attn_mask), _ALL_KEPT, options)


def attention_dropout(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, attn_mask: Any, seed: Any,
    dropout_p: float, is_causal: bool, scale: float | None, enable_gqa: bool,
) -> Any:  # fmt: skip
    """:func:`attention` with weights dropped by ``seed``."""
    options = (is_causal, scale, enable_gqa)
    return _attended((query, key, value, attn_mask), _dropping(seed, dropout_p), options)


def attention_dropout_backward(
    grad: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray, attn_mask: Any,
    seed: Any, dropout_p: float, is_causal: bool, scale: float | None, enable_gqa: bool,
) -> Any:  # fmt: skip
    """Gradients of the query, the key and the value."""
    options, dropping = (is_causal, scale, enable_gqa), _dropping(seed, dropout_p)
    return _gradients(grad, (query, key, value, attn_mask), dropping, options)


def _added(found: np.ndarray, parts: int, shape: tuple[int, ...]) -> np.ndarray:
    """What the parts of each head add up to; 0 for keys that no query sees."""
    found = found.reshape(prod(shape[:-2]), parts, -1, shape[-1])
    found = found.sum(1) if parts > 1 else found[:, 0]
    if found.shape[1] < shape[-2]:
        found = np.pad(found, ((0, 0), (0, shape[-2] - found.shape[1]), (0, 0)))
    return found.reshape(shape)


def _accepts(x: Any, *others: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in FLOATS


KERNELS: dict[str, Callable[..., Any]] = {
    "attention": attention,
    "attention_backward": attention_backward,
    "attention_dropout": attention_dropout,
    "attention_dropout_backward": attention_dropout_backward,
}
WHEN: dict[str, Callable[..., bool]] = dict.fromkeys(KERNELS, _accepts)
