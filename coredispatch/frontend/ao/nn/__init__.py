"""``cd.ao.nn``: modules of quantized networks, and those that become such."""

from __future__ import annotations

from coredispatch.frontend.ao.nn import intrinsic, qat, quantizable, quantized

__all__ = ["intrinsic", "qat", "quantizable", "quantized"]
