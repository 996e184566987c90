"""Tensors that lie in parts on several ranks: placements, and modules computed in parts.

There is no ``DTensor``: parameters are the local parts, as tensors.
"""

from __future__ import annotations

from coredispatch.frontend.distributed.device_mesh import DeviceMesh, init_device_mesh
from coredispatch.frontend.distributed.tensor.placements import Placement, Replicate, Shard

__all__ = ["DeviceMesh", "Placement", "Replicate", "Shard", "init_device_mesh"]
