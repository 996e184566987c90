"""``implicit_replication``: plain tensors among DTensors."""

from __future__ import annotations

from coredispatch.frontend.distributed.tensor.sharding.propagation import implicit_replication

__all__ = ["implicit_replication"]
