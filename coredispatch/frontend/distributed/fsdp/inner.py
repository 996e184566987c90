"""What tensor parallelism has made of a parameter, before its parts are sharded once more."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from coredispatch.frontend.distributed.device_mesh import DeviceMesh
from coredispatch.frontend.distributed.tensor.dtensor import DTensor, wrapped
from coredispatch.frontend.distributed.tensor.placements import Placement, Shard, _StridedShard
from coredispatch.frontend.distributed.tensor.transfers import moved

__all__ = ["Inner", "inner_of", "part_of"]


class Inner(NamedTuple):
    """How a rank's part that is gathered lies among those of tensor parallelism."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    shape: tuple[int, ...]

    def close(self, part: Any) -> Any:
        """The DTensor with this part."""
        return wrapped(part, self.mesh, self.placements, self.shape)

    def open(self, tensor: Any) -> Any:
        """This rank's part of a DTensor, moved to lie as the parameter does."""
        return moved(
            tensor._local_tensor, self.shape, self.mesh, tensor.placements, self.placements
        )

    def joined(self, mesh: DeviceMesh) -> DeviceMesh:
        """The mesh of both: that of ``fully_shard`` first."""
        root = mesh._root
        names = (*(mesh.mesh_dim_names or ()), *(self.mesh.mesh_dim_names or ()))
        if root is None or self.mesh._root != root or len(set(names)) != len(names):
            raise ValueError(
                f"fully_shard: {mesh} and the mesh of tensor parallelism, {self.mesh}, are not two "
                "parts of one mesh\n"
                "  fix: mesh = init_device_mesh('cpu', (2, 2), mesh_dim_names=('dp', 'tp')), then "
                "mesh['dp'] and mesh['tp']"
            )
        return root[names]

    def divided(self, dim: int) -> Placement:
        """How `dim` is divided that these placements may have divided before."""
        factors = [self.mesh.size(at) for at, p in enumerate(self.placements) if p.is_shard(dim)]
        return _StridedShard(dim, split_factor=math.prod(factors)) if factors else Shard(dim)


def inner_of(param: Any) -> Inner | None:
    """Of a DTensor; None for a plain parameter. ValueError for a sum that is not added up yet."""
    if not isinstance(param, DTensor):
        return None
    if any(p.is_partial() for p in param.placements):
        raise ValueError(
            f"fully_shard: a parameter of placements {param.placements} is no tensor yet\n"
            "  fix: redistribute it"
        )
    return Inner(param.device_mesh, param.placements, tuple(param.shape))


def part_of(param: Any) -> Any:
    """What this rank has of a parameter."""
    return param._local_tensor if isinstance(param, DTensor) else param
