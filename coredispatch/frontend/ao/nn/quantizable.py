"""``nn.quantizable``: PyTorch's LSTM and attention in parts that can be quantized."""

from __future__ import annotations

from coredispatch.frontend.announced import announced_class

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]

_FIX = "quantize its Linear layers, or use quantize_dynamic"
LSTM = announced_class("nn.quantizable.LSTM", _FIX)
LSTMCell = announced_class("nn.quantizable.LSTMCell", _FIX)
MultiheadAttention = announced_class("nn.quantizable.MultiheadAttention", _FIX)
