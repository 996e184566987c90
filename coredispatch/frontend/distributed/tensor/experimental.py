"""``implicit_replication``: plain tensors among DTensors."""

from __future__ import annotations

from coredispatch.frontend.distributed.tensor.mixing import implicit_replication

__all__ = ["implicit_replication"]
