"""The Transformer. Vaswani et al., "Attention Is All You Need", 2017."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn import init
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.attention import MultiheadAttention
from coredispatch.frontend.nn.modules.container import ModuleList
from coredispatch.frontend.nn.modules.dropout import Dropout
from coredispatch.frontend.nn.modules.linear import Linear
from coredispatch.frontend.nn.modules.norm import LayerNorm
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

_op = TABLE.operator


def _activation(activation: Any) -> Callable[..., Any]:
    function = getattr(F, activation) if activation in ("relu", "gelu") else activation
    if callable(function):
        found: Callable[..., Any] = function
        return found
    raise RuntimeError(f"activation should be relu/gelu, not {activation}")


class _Layer(Module):
    """What encoder and decoder layers share: attention, a feed-forward net, and norms."""

    _norms = 2

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        options = {"dropout": dropout, "bias": bias, "batch_first": batch_first, **where}
        self.self_attn = MultiheadAttention(d_model, nhead, **options)
        if self._norms == 3:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **options)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **where)
        self.norm_first = norm_first
        for number in range(1, self._norms + 1):
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
            setattr(self, f"norm{number}", norm)
        for number in range(1, self._norms + 1):
            setattr(self, f"dropout{number}", Dropout(dropout))
        self.activation = _activation(activation)

    def _feed(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _residual(self, number: int, x: Any, block: Callable[[Any], Any]) -> Any:
        """``x`` plus the block's result, normalized before or after."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        if self.norm_first:
            return x + dropout(block(norm(x)))
        return norm(x + dropout(block(x)))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward net, each with residual and norm."""

    def forward(
        self,
        src: Any,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        """``src`` attended to itself; masks as in :class:`MultiheadAttention`."""

        def attend(x: Any) -> Any:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask)[0]

        return self._residual(2, self._residual(1, src, attend), self._feed)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's memory, and a feed-forward net."""

    _norms = 3

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        """``tgt`` attended to itself and to ``memory``."""

        def attend(x: Any) -> Any:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask)[0]

        def recall(x: Any) -> Any:
            masks = memory_key_padding_mask, False, memory_mask
            return self.multihead_attn(x, memory, memory, *masks)[0]

        x = self._residual(2, self._residual(1, tgt, attend), recall)
        return self._residual(3, x, self._feed)


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer, and a norm if given."""

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        src: Any,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool | None = None,
    ) -> Any:
        """``src`` through all layers."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer, and a norm if given."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Any, memory: Any, *masks: Any, **options: Any) -> Any:
        """``tgt`` through all layers; masks as the layer's."""
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **options)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder with PyTorch's defaults."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        options = {"batch_first": batch_first, "norm_first": norm_first, "bias": bias, **where}

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*sizes, **options), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*sizes, **options), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        """The decoder's output for ``tgt``, given ``src``."""
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
        """``(sz, sz)``: 0 on and below the diagonal, -inf above."""
        return _op("full")((sz, sz), float("-inf"), device=device, dtype=dtype).triu(1)
