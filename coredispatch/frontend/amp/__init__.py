"""Automatic mixed precision: the layer ``autocast``, driven by each op's cast policy.

``lower`` ops (matmul, conv, linear) get their floating arguments in the autocast dtype,
``float32`` ops (softmax, norms, losses) in float32, ``widest`` ops in the widest dtype among
them; all others pass. Casts of leaves that require grad (weights) are cached for the length of
the outermost ``autocast`` block, and forgotten as soon as the weight is written to.
"""

from __future__ import annotations

from coredispatch.frontend.amp.autocast import (
    autocast,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_enabled,
)
from coredispatch.frontend.amp.custom_function import custom_bwd, custom_fwd
from coredispatch.frontend.amp.grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
]
