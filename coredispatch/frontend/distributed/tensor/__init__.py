"""Tensors that lie in parts on several ranks, and modules computed in parts."""

from __future__ import annotations

from coredispatch.frontend.distributed.device_mesh import DeviceMesh, init_device_mesh
from coredispatch.frontend.distributed.tensor.dtensor import DTensor
from coredispatch.frontend.distributed.tensor.making import (
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from coredispatch.frontend.distributed.tensor.placements import (
    Partial,
    Placement,
    Replicate,
    Shard,
)

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "init_device_mesh",
    "ones",
    "rand",
    "randn",
    "zeros",
]
