"""Multi-head attention. Vaswani et al., "Attention Is All You Need", 2017."""

from __future__ import annotations

import math
from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn import init
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.linear import Linear
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import RequirementError

__all__ = ["MultiheadAttention"]

_op = TABLE.operator


class MultiheadAttention(Module):
    """Attention in ``num_heads`` subspaces of ``embed_dim``; parameters are named as PyTorch's."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise RequirementError("embed_dim must be positive and divisible by num_heads")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first, self.head_dim = batch_first, embed_dim // num_heads
        self.add_zero_attn = add_zero_attn
        where = {"device": device, "dtype": dtype}

        def make(*shape: int) -> Parameter:
            return Parameter(_op("empty")(shape, **where))

        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = make(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = make(embed_dim, embed_dim)
            self.k_proj_weight = make(embed_dim, self.kdim)
            self.v_proj_weight = make(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", make(3 * embed_dim) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, **where)
        self.register_parameter("bias_k", make(1, 1, embed_dim) if add_bias_kv else None)
        self.register_parameter("bias_v", make(1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def _projected(self, query: Any, key: Any, value: Any) -> list[Any]:
        if self.in_proj_weight is None:
            weights = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        elif query is key and key is value:  # one product instead of three
            return list(F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1))
        else:
            weights = list(self.in_proj_weight.chunk(3, 0))
        biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3, 0)
        return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """The attended values, and the weights (averaged over heads) or None.

        ``query`` is ``(L, N, E)``, ``(N, L, E)`` with ``batch_first`` or ``(L, E)``; keys and
        values likewise with ``S`` in place of ``L``. Masks are bool (True: left out) or added:
        ``key_padding_mask`` ``(N, S)``, ``attn_mask`` ``(L, S)`` or ``(N * heads, L, S)``.
        ``is_causal`` is a hint and needs ``attn_mask``.
        """
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        unbatched = query.ndim == 2
        q, k, v = self._projected(query, key, value)
        if unbatched:
            q, k, v = (x.unsqueeze(0) for x in (q, k, v))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        batch, length, _ = q.shape
        mask = self._mask(attn_mask, key_padding_mask, q, k.shape[1])
        if self.bias_k is not None:
            k = _op("cat")([k, self.bias_k.expand(batch, 1, self.embed_dim)], 1)
            v = _op("cat")([v, self.bias_v.expand(batch, 1, self.embed_dim)], 1)
        if self.add_zero_attn:
            zero = k.new_zeros((batch, 1, self.embed_dim))
            k, v = _op("cat")([k, zero], 1), _op("cat")([v, zero], 1)
        if mask is not None and mask.shape[-1] < k.shape[1]:
            mask = F.pad(mask, (0, k.shape[1] - mask.shape[-1]))

        def heads(x: Any) -> Any:
            return x.reshape(batch, x.shape[1], self.num_heads, self.head_dim).transpose(1, 2)

        q, k, v = heads(q), heads(k), heads(v)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q * (1 / math.sqrt(self.head_dim))).matmul(k.mT)
            weights = _op("softmax")(scores if mask is None else scores + mask, -1)
            if dropout:
                weights = F.dropout(weights, dropout, True)
            result = weights.matmul(v)
        else:
            result = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        result = self.out_proj(result.transpose(1, 2).reshape(batch, length, self.embed_dim))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if unbatched:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return (result if self.batch_first else result.transpose(0, 1)), weights

    def _mask(self, attn_mask: Any, key_padding_mask: Any, q: Any, keys: int) -> Any:
        """Both masks as one that is added, broadcast against ``(N, heads, L, S)``."""
        total = None
        if attn_mask is not None:
            total = _added(attn_mask, q)
            if total.ndim == 3:
                total = total.reshape(q.shape[0], self.num_heads, q.shape[1], keys)
        if key_padding_mask is not None:
            padding = _added(key_padding_mask, q).reshape(q.shape[0], 1, 1, keys)
            total = padding if total is None else total + padding
        return total


def _added(mask: Any, like: Any) -> Any:
    """A bool mask (True: left out) as zeros and -inf; others as they are."""
    if mask.dtype.name != "bool":
        return mask
    return like.new_zeros(tuple(mask.shape)).masked_fill(mask, float("-inf"))
