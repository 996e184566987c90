"""Tensors that lie in parts on several ranks, and modules computed in parts."""

from __future__ import annotations

from coredispatch._version import __version__ as _version
from coredispatch.frontend.distributed.device_mesh import DeviceMesh, init_device_mesh
from coredispatch.frontend.distributed.tensor import mixing as _mixing
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
from coredispatch.registry import plugins as _plugins

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

_plugins.builtin("distributed_tensor", _mixing, _version)
