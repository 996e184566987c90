"""``cd.ao``: the name under which PyTorch has quantization."""

from __future__ import annotations

from coredispatch.frontend.ao import quantization

__all__ = ["quantization"]
