"""``DeviceMesh``: the ranks as an array, with a process group along each of its dimensions."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.frontend.distributed.groups import (
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
)
from coredispatch.frontend.distributed.process_group import ProcessGroup

__all__ = ["DeviceMesh", "current_mesh", "init_device_mesh"]


class _Current(threading.local):
    def __init__(self) -> None:
        self.meshes: list[DeviceMesh] = []


_current = _Current()


def current_mesh() -> DeviceMesh:
    """The mesh of the innermost ``with mesh:``. RuntimeError where there is none."""
    if not _current.meshes:
        raise RuntimeError("No device mesh is currently active!\n  fix: with mesh: ..., or mesh=")
    return _current.meshes[-1]


class DeviceMesh:
    """Ranks in rows, columns, ...; every rank of the job makes it, with the same arguments.

    Args:
        device_type: ``"cpu"`` or ``"cuda"``.
        mesh: the ranks, as a tensor or nested lists.
        mesh_dim_names: for ``mesh["tp"]``.

    Example::

        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        mesh.get_group("tp")       # the four ranks of this rank's row
    """

    __module__ = "coredispatch.distributed.device_mesh"

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
        backend_override: Any = None,
        _init_backend: bool = True,
        _groups: list[Any] | None = None,
        _root: DeviceMesh | None = None,
    ) -> None:
        if backend_override is not None:
            raise NotImplementedError(
                "DeviceMesh(backend_override=) is not there\n"
                "  fix: name the backends in init_process_group"
            )
        self.device_type = device_type
        ranks = mesh.numpy() if hasattr(mesh, "numpy") else np.asarray(mesh)
        self._ranks = np.array(ranks, dtype=np.int64)
        if len(set(self._ranks.reshape(-1).tolist())) != self._ranks.size:
            raise ValueError(f"a rank is twice in the mesh {self._ranks.tolist()}")
        if mesh_dim_names is not None and len(mesh_dim_names) != self._ranks.ndim:
            raise ValueError(
                f"mesh_dim_names {mesh_dim_names} for a mesh of {self._ranks.ndim} dimensions"
            )
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        self._root = _root
        self._flattened: dict[str, DeviceMesh] = {}
        if _groups is not None:
            self._groups = _groups
        else:
            if _init_backend and not is_initialized():
                init_process_group()
            self._groups = self._make_groups()

    def _make_groups(self) -> list[Any]:
        rank, found = get_rank(), []
        for dim in range(self._ranks.ndim):
            own: Any = None
            lines = np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim])
            for line in lines.tolist():
                name = f"mesh_{self.mesh_dim_names[dim] if self.mesh_dim_names else dim}"
                made = new_group(line, group_desc=name, sort_ranks=False)
                if rank in line:
                    own = made
            found.append(own)
        return found

    @classmethod
    def from_group(
        cls,
        group: Any,
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
    ) -> DeviceMesh:
        """A mesh of groups that exist: one group, or one for each dimension of `mesh`."""
        if isinstance(group, ProcessGroup):
            return cls(device_type, group.ranks, mesh_dim_names=mesh_dim_names, _groups=[group])
        if mesh is None:
            raise ValueError("Must pass mesh if passing multiple ProcessGroups")
        return cls(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=list(group))

    @property
    def mesh(self) -> Any:
        """The ranks, as a tensor of int64."""
        return cd.tensor(self._ranks)

    @property
    def ndim(self) -> int:
        """How many dimensions."""
        return int(self._ranks.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """Ranks in each dimension."""
        return tuple(self._ranks.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """Ranks in all, or in one dimension."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise RuntimeError(
                    f"the mesh has {self.ndim} dimensions: mesh_dim must say which one is meant"
                )
            return 0
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(
                    f"Invalid mesh_dim_name {mesh_dim!r}: the mesh has {self.mesh_dim_names}"
                )
            return self.mesh_dim_names.index(mesh_dim)
        return mesh_dim

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of this rank along a dimension."""
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        """The groups of this rank along all dimensions."""
        return list(self._groups)

    def get_rank(self) -> int:
        """The rank of this process in the job."""
        return get_rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where this rank is in the mesh; None where it is not."""
        found = np.argwhere(self._ranks == get_rank())
        return tuple(int(i) for i in found[0]) if len(found) else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Where this rank is along a dimension."""
        place = self.get_coordinate()
        if place is None:
            raise RuntimeError(f"rank {get_rank()} is not in the mesh")
        return place[self._dim(mesh_dim)]

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the mesh along the named dimensions that this rank is in."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        if len(wanted) == 1 and wanted[0] in self._flattened:
            return self._flattened[wanted[0]]
        dims = [self._dim(name) for name in wanted]
        place = self.get_coordinate()
        if place is None:
            raise RuntimeError(f"rank {get_rank()} is not in the mesh")
        index = tuple(slice(None) if d in dims else place[d] for d in range(self.ndim))
        kept = [d for d in range(self.ndim) if d in dims]
        part = np.transpose(self._ranks[index], [kept.index(d) for d in dims])
        return DeviceMesh(
            self.device_type,
            part,
            mesh_dim_names=wanted,
            _groups=[self._groups[d] for d in dims],
            _root=self._root or self,
        )

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """One dimension of all ranks of this mesh; every rank of the job calls it."""
        root = self._root or self
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        if name not in root._flattened:
            if self.size() == get_world_size():
                made = DeviceMesh(self.device_type, self._ranks.reshape(-1), mesh_dim_names=(name,))
            else:
                group = new_group(
                    self._ranks.reshape(-1).tolist(),
                    use_local_synchronization=True,
                    group_desc=name,
                    sort_ranks=False,
                )
                made = DeviceMesh(
                    self.device_type,
                    self._ranks.reshape(-1),
                    mesh_dim_names=(name,),
                    _groups=[group],
                )
            root._flattened[name] = made
        return root._flattened[name]

    def __enter__(self) -> DeviceMesh:
        """The mesh that DTensors are made on, where none is given."""
        _current.meshes.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.meshes.pop()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return (
            self.device_type == other.device_type
            and self.mesh_dim_names == other.mesh_dim_names
            and np.array_equal(self._ranks, other._ranks)
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.mesh_dim_names, self._ranks.tobytes(), self.shape))

    def __repr__(self) -> str:
        if self.mesh_dim_names is None:
            shape: Any = self.shape
        else:
            pairs = zip(self.mesh_dim_names, self.shape, strict=True)
            shape = "(" + ", ".join(f"{n}={s}" for n, s in pairs) + ")"
        strides = tuple(s // 8 for s in self._ranks.strides)
        return f"DeviceMesh({shape}, '{self.device_type}', stride={strides})"


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """A mesh of the ranks 0, 1, ... in rows of `mesh_shape`. Joins the default group if need be.

    Raises RuntimeError where the job has fewer ranks, or dimension names are not one for each.
    """
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError("Each mesh_dim_name must be unique.")
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError("mesh_shape and mesh_dim_names should have same length!")
    if not is_initialized():
        init_process_group()
    needed = int(np.prod(mesh_shape))
    if needed > get_world_size():
        raise RuntimeError(
            f"Mesh should not be bigger than default world size {get_world_size()}, but found "
            f"{needed} ranks!"
        )
    return DeviceMesh(
        device_type,
        np.arange(needed).reshape(mesh_shape),
        mesh_dim_names=mesh_dim_names,
        backend_override=backend_override,
    )
