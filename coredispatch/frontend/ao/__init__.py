"""``cd.ao``: the name under which PyTorch has quantization."""

from __future__ import annotations

from coredispatch.frontend.ao import nn, quantization

__all__ = ["nn", "quantization"]
