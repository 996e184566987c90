"""The Transformer. Vaswani et al., "Attention Is All You Need", 2017."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.modes import is_grad_enabled
from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn import init
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.activation import GELU, ReLU
from coredispatch.frontend.nn.modules.attention import MultiheadAttention
from coredispatch.frontend.nn.modules.container import ModuleList
from coredispatch.frontend.nn.modules.dropout import Dropout
from coredispatch.frontend.nn.modules.linear import Linear
from coredispatch.frontend.nn.modules.normalization import LayerNorm
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

_op = TABLE.operator


def _get_activation_fn(activation: Any) -> Callable[..., Any]:
    """The function of a name, ``"relu"`` or ``"gelu"``."""
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    found: Callable[..., Any] = getattr(F, activation)
    return found


def _get_clones(module: Module, N: int) -> ModuleList:
    """``N`` copies of a module."""
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


def _generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
    """Minus infinity above the diagonal, 0 elsewhere: what comes later is left out."""
    full = _op("full")((sz, sz), float("-inf"), dtype=dtype, device=device)
    return full.triu(1)


def _get_seq_len(src: Any, batch_first: bool) -> int | None:
    if src.ndim == 2:
        return int(src.shape[0])
    length: int = src.shape[1 if batch_first else 0]
    return length


def _detect_is_causal_mask(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
    """``is_causal``, or where that is None whether ``mask`` is the causal one."""
    if is_causal is not None or mask is None:
        return bool(is_causal)
    wanted = mask.shape[-2] if size is None else size
    causal = _generate_square_subsequent_mask(wanted, device=mask.device, dtype=mask.dtype)
    return tuple(mask.shape) == tuple(causal.shape) and bool((mask == causal).all())


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
        self.activation = (
            _get_activation_fn(activation) if isinstance(activation, str) else activation
        )

    def _residual(self, number: int, x: Any, block: Callable[[Any], Any]) -> Any:
        """``x`` plus the block's result, normalized before or after."""
        norm = getattr(self, f"norm{number}")
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _sa_block(
        self, x: Any, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False
    ) -> Any:
        """Self-attention with its dropout."""
        x = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]
        return self.dropout1(x)

    def _feed_forward(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


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

        masks = src_mask, src_key_padding_mask, is_causal
        x = self._residual(1, src, lambda x: self._sa_block(x, *masks))
        return self._residual(2, x, self._ff_block)

    def _ff_block(self, x: Any) -> Any:
        """The feed-forward net with its dropout."""
        return self.dropout2(self._feed_forward(x))


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

        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        other = memory_mask, memory_key_padding_mask, memory_is_causal
        x = self._residual(1, tgt, lambda x: self._sa_block(x, *own))
        x = self._residual(2, x, lambda x: self._mha_block(x, memory, *other))
        return self._residual(3, x, self._ff_block)

    def _mha_block(
        self,
        x: Any,
        mem: Any,
        attn_mask: Any,
        key_padding_mask: Any,
        is_causal: bool = False,
    ) -> Any:
        """Attention to the encoder's memory with its dropout."""
        x = self.multihead_attn(
            x,
            mem,
            mem,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]
        return self.dropout2(x)

    def _ff_block(self, x: Any) -> Any:
        """The feed-forward net with its dropout."""
        return self.dropout3(self._feed_forward(x))


def _why_no_fast_path(layer: Any) -> str | None:
    """Why PyTorch does not run an encoder of such layers on sequences without their padding."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    if layer.norm_first:
        reason = "norm_first was True"
    elif not attention.batch_first:
        reason = (
            "self_attn.batch_first was not True(use batch_first for better inference performance)"
        )
    elif not attention._qkv_same_embed_dim:
        reason = "self_attn._qkv_same_embed_dim was not True"
    elif attention.in_proj_bias is None:
        reason = "self_attn was passed bias=False"
    elif not (layer.activation in (F.relu, F.gelu) or isinstance(layer.activation, (ReLU, GELU))):
        reason = "activation_relu_or_gelu was not True"
    elif layer.norm1.eps != layer.norm2.eps:
        reason = "norm1.eps was not equal to encoder_layer.norm2.eps"
    elif attention.num_heads % 2 == 1:
        reason = "self_attn.num_heads is odd"
    else:
        return None
    return f"encoder_layer.{reason}"


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
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        reason = _why_no_fast_path(encoder_layer)
        if enable_nested_tensor and reason is not None:
            warn(
                "enable_nested_tensor is True, but self.use_nested_tensor is False because "
                f"{reason}"
            )
        self.use_nested_tensor = enable_nested_tensor and reason is None

    def forward(
        self,
        src: Any,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool | None = None,
    ) -> Any:
        """``src`` through all layers.

        In evaluation without gradients, where PyTorch's layers take their fast path, what is
        behind the end of a sequence is 0 in the result, as it is there.
        """
        dropped = None
        if src_key_padding_mask is not None and mask is None and self._drops_padding(src):
            padding = src_key_padding_mask
            if padding.dtype.name != "bool":
                padding = padding == float("-inf")
            if not self.mask_check or bool((padding[:, 1:] | ~padding[:, :-1]).all()):
                dropped = padding.unsqueeze(-1)
        batch_first = getattr(getattr(self.layers[0], "self_attn", None), "batch_first", False)
        length = _get_seq_len(src, batch_first) if self.num_layers else None
        is_causal = _detect_is_causal_mask(mask, is_causal, length)
        output = src
        for layer in self.layers:
            output = layer(
                output,
                src_mask=mask,
                is_causal=is_causal,
                src_key_padding_mask=src_key_padding_mask,
            )
        if dropped is not None:
            output = output.masked_fill(dropped, 0)
        return output if self.norm is None else self.norm(output)

    def _drops_padding(self, src: Any) -> bool:
        if self.training or not self.use_nested_tensor or src.ndim != 3:
            return False
        return not is_grad_enabled() or not (
            src.requires_grad or any(p.requires_grad for p in self.parameters())
        )


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer, and a norm if given."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        """``tgt`` through all layers; masks as the layer's."""
        batch_first = getattr(getattr(self.layers[0], "self_attn", None), "batch_first", False)
        length = _get_seq_len(tgt, batch_first)
        output = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=_detect_is_causal_mask(tgt_mask, tgt_is_causal, length),
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


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
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

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
        batched = src.ndim == 3
        if src.ndim != tgt.ndim or (
            batched and src.shape[not self.batch_first] != tgt.shape[not self.batch_first]
        ):
            raise RuntimeError("the batch number of src and tgt must be equal")
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
        """``(sz, sz)``: 0 on and below the diagonal, -inf above."""
        return _generate_square_subsequent_mask(sz, device=device, dtype=dtype)
