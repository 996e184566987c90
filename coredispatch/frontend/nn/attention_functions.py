"""Multi-head attention as a function. Vaswani et al., "Attention Is All You Need", 2017."""

from __future__ import annotations

import math
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["multi_head_attention_forward"]

_op = TABLE.operator
_linear, _cat = _op("linear"), _op("cat")


def _mha_shape_check(
    query: Any, key: Any, value: Any, key_padding_mask: Any, attn_mask: Any, num_heads: int
) -> bool:
    """Whether there is a batch. Raises ``AssertionError`` for shapes that do not go together."""
    if query.ndim not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query "
            "tensor"
        )
    batched: bool = query.ndim == 3
    kind = "batched (3-D)" if batched else "unbatched (2-D)"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {query.ndim}-D but found "
            f"{key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != query.ndim - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {query.ndim - 1}-D "
            f"but found {key_padding_mask.ndim}-D tensor instead"
        )
    if attn_mask is not None:
        if attn_mask.ndim not in (2, 3):
            raise AssertionError(
                f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
                f"{attn_mask.ndim}-D tensor instead"
            )
        expected = (num_heads, query.shape[0], key.shape[0])
        if not batched and attn_mask.ndim == 3 and tuple(attn_mask.shape) != expected:
            raise AssertionError(
                f"Expected `attn_mask` shape to be {expected} but got {tuple(attn_mask.shape)}"
            )
    return batched


def _canonical_mask(
    mask: Any,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Any:
    """A mask as one that is added: True becomes minus infinity."""
    if mask is None:
        return None
    is_bool = mask.dtype.name == "bool"
    if not is_bool and not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for "
            "both instead."
        )
    if not is_bool:
        return mask
    zeros = _op("zeros_like")(mask, dtype=target_type)
    return zeros.masked_fill(mask, float("-inf"))


def _projected(
    query: Any, key: Any, value: Any, packed: Any, weights: list[Any], bias: Any
) -> list[Any]:
    """Queries, keys and values after their input projections."""
    if packed is not None and query is key and key is value:  # one product instead of three
        return list(_linear(query, packed, bias).chunk(3, -1))
    if packed is not None:
        weights = list(packed.chunk(3, 0))
    biases = [None] * 3 if bias is None else bias.chunk(3, 0)
    return [_linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The attended values, and the weights (averaged over heads) or None.

    ``query`` is ``(L, N, E)`` or ``(L, E)``; keys and values likewise with ``S`` in place of ``L``.
    Masks are bool (True: left out) or added: ``key_padding_mask`` ``(N, S)``, ``attn_mask``
    ``(L, S)`` or ``(N * heads, L, S)``. ``static_k`` and ``static_v``
    ``(N * heads, S, E / heads)`` take the place of projected keys and values. ``is_causal`` is a
    hint and needs ``attn_mask``.
    """
    batched = _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads)
    embed_dim = query.shape[-1]
    if embed_dim != embed_dim_to_check:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}"
        )
    if (bias_k is None) != (bias_v is None):
        lone = ("bias_v", "bias_k") if bias_k is None else ("bias_k", "bias_v")
        raise AssertionError("{} is set but {} is None".format(*lone))
    head_dim = embed_dim // num_heads
    if head_dim * num_heads != embed_dim:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    mask_type = None if attn_mask is None else attn_mask.dtype
    padding: Any = _canonical_mask(
        key_padding_mask, "key_padding_mask", mask_type, "attn_mask", query.dtype
    )
    mask: Any = _canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, False)
    same = query is key and key is value
    q: Any = query
    k: Any = key
    v: Any = value
    if not batched:
        q = query.unsqueeze(1)
        k, v = (q, q) if same else (key.unsqueeze(1), value.unsqueeze(1))
        padding = None if padding is None else padding.unsqueeze(0)
    if not use_separate_proj_weight:
        if tuple(k.shape) != tuple(v.shape):
            raise AssertionError(f"key shape {k.shape} does not match value shape {v.shape}")
    elif k.shape[:2] != v.shape[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {k.shape[:2]} do not match value's {v.shape[:2]}"
        )
    weights = [q_proj_weight, k_proj_weight, v_proj_weight]
    packed = None if use_separate_proj_weight else in_proj_weight
    q, k, v = _projected(q, k, v, packed, weights, in_proj_bias)
    length, batch, _ = q.shape
    mask = _shaped_mask(mask, batch, num_heads, length, k.shape[0])

    extra = 0
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key and value")
        k = _cat([k, bias_k.expand(1, batch, embed_dim)])
        v = _cat([v, bias_v.expand(1, batch, embed_dim)])
        extra += 1

    def heads(x: Any) -> Any:  # (S, N, E) to (N, heads, S, E / heads)
        return x.reshape(x.shape[0], batch, num_heads, head_dim).permute(1, 2, 0, 3)

    q = heads(q)
    k, v = (
        heads(x) if static is None else _static(name, static, batch, num_heads, head_dim)
        for name, x, static in (("static_k", k, static_k), ("static_v", v, static_v))
    )
    if add_zero_attn:
        zeros = k.new_zeros((batch, num_heads, 1, head_dim))
        k, v = _cat([k, zeros], 2), _cat([v, zeros], 2)
        extra += 1
    if padding is not None:
        sources = k.shape[2] - extra
        if tuple(padding.shape) != (batch, sources):
            raise AssertionError(
                f"expecting key_padding_mask shape of {(batch, sources)}, but got "
                f"{tuple(padding.shape)}"
            )
        padding = padding.reshape(batch, 1, 1, sources)
        mask = padding if mask is None else mask + padding
    if mask is not None and extra:
        mask = _op("pad")(mask, (0, extra))
    dropout = dropout_p if training else 0.0
    shares = None
    if need_weights:
        scores = (q * math.sqrt(1.0 / head_dim)).matmul(k.mT)
        shares = _op("softmax")(scores if mask is None else scores + mask, -1)
        if dropout:
            shares = _op("dropout")(shares, dropout, True)
        result = shares.matmul(v)
    else:
        result = _op("scaled_dot_product_attention")(q, k, v, mask, dropout)
    result = result.permute(2, 0, 1, 3).reshape(length, batch, embed_dim)
    result = _linear(result, out_proj_weight, out_proj_bias)
    if shares is not None and average_attn_weights:
        shares = shares.mean(1)
    if not batched:
        return result.squeeze(1), None if shares is None else shares.squeeze(0)
    return result, shares


def _shaped_mask(mask: Any, batch: int, num_heads: int, length: int, sources: int) -> Any:
    """A mask that broadcasts against ``(N, heads, L, S)``. Raises for other shapes."""
    if mask is None:
        return None
    wanted = (length, sources) if mask.ndim == 2 else (batch * num_heads, length, sources)
    if tuple(mask.shape) != wanted:
        raise RuntimeError(
            f"The shape of the {mask.ndim}D attn_mask is {tuple(mask.shape)}, but should be "
            f"{wanted}."
        )
    return mask if mask.ndim == 2 else mask.reshape(batch, num_heads, length, sources)


def _static(name: str, static: Any, batch: int, num_heads: int, head_dim: int) -> Any:
    if static.shape[0] != batch * num_heads or static.shape[2] != head_dim:
        raise AssertionError(
            f"expecting {name} of shape ({batch * num_heads}, S, {head_dim}), but got "
            f"{tuple(static.shape)}"
        )
    return static.reshape(batch, num_heads, static.shape[1], head_dim)
