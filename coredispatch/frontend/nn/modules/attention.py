"""Multi-head attention. Vaswani et al., "Attention Is All You Need", 2017."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn import init
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.linear import NonDynamicallyQuantizableLinear
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
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise RequirementError("embed_dim must be divisible by num_heads")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first, self.head_dim = batch_first, embed_dim // num_heads
        self.add_zero_attn = add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        where = {"device": device, "dtype": dtype}

        def make(*shape: int) -> Parameter:
            return Parameter(_op("empty")(shape, **where))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = make(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = make(embed_dim, embed_dim)
            self.k_proj_weight = make(embed_dim, self.kdim)
            self.v_proj_weight = make(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", make(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, **where)
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

        ``query`` is ``(L, N, E)``, ``(N, L, E)`` with ``batch_first`` or ``(L, E)``; the rest is as
        in ``nn.functional.multi_head_attention_forward``.
        """
        swap = self.batch_first and query.ndim == 3
        if swap:
            same = key is query, value is query, value is key
            query = query.transpose(0, 1)
            key = query if same[0] else key.transpose(0, 1)
            value = query if same[1] else key if same[2] else value.transpose(0, 1)
        result, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (result.transpose(0, 1) if swap else result), weights
