"""Attention without a matrix of all queries and keys, where nothing asks for its gradient."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import FLOATS
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "WHEN"]

_SPLIT = 1 << 16
_ROWS = 32  # as in the loop
_attention = Loop("nn.attention", "attention", _SPLIT)
_NO_CHOICE = np.zeros(1, np.bool_)


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


def scaled_dot_product_attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, attn_mask: Any, dropout_p: float,
    is_causal: bool, scale: float | None, enable_gqa: bool,
) -> Any:  # fmt: skip
    """``softmax(query @ key^T * scale + mask) @ value``."""
    dtype = query.dtype
    if dropout_p or query.ndim < 2 or (is_causal and attn_mask is not None):
        return NotImplemented
    if not all(type(x) is np.ndarray and x.dtype == dtype and x.ndim >= 2 for x in (key, value)):
        return NotImplemented
    lead, (queries, depth) = query.shape[:-2], query.shape[-2:]
    shared, (keys, columns) = key.shape[:-2], (key.shape[-2], value.shape[-1])
    if key.shape[-1] != depth or value.shape[:-1] != (*shared, keys):
        return NotImplemented
    groups = 1
    if lead != shared:
        if not enable_gqa or len(lead) != len(shared) or lead[:-1] != shared[:-1]:
            return NotImplemented
        groups, rest = divmod(lead[-1], shared[-1]) if shared[-1] else (0, 1)
        if rest:
            return NotImplemented
    heads = prod(lead)
    if not (heads and queries and keys and depth and columns):
        return NotImplemented
    masked, masks, chosen, added = 0, 1, _NO_CHOICE, query.reshape(-1)[:1]
    if attn_mask is not None:
        found = _mask(attn_mask, lead, queries, keys, dtype)
        if found is None:
            return NotImplemented
        mask, masks = found
        masked = 2 if mask.dtype == np.bool_ else 1
        chosen, added = (mask, added) if masked == 2 else (chosen, mask)
    factor = 1 / sqrt(depth) if scale is None else float(scale)
    q, k, v = (np.ascontiguousarray(x) for x in (query, key, value))
    out = np.empty((*lead, queries, columns), dtype)
    wanted, blocks = thread_count.wanted, -(-queries // _ROWS)
    parts = 1 if heads >= 2 * wanted else min(blocks, -(-2 * wanted // heads))
    _attention(
        dtype, heads * queries * keys * (depth + columns), heads * parts, q, k, v, chosen, added,
        masked, masks, queries, keys, depth, columns, groups, parts, int(is_causal),
        factor, out, grain=-(-heads * parts // (2 * wanted)),
    )  # fmt: skip
    return out


def _accepts(query: Any, *others: Any) -> bool:
    return type(query) is np.ndarray and query.dtype in FLOATS


KERNELS: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": scaled_dot_product_attention
}
WHEN: dict[str, Callable[..., bool]] = dict.fromkeys(KERNELS, _accepts)
