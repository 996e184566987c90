"""PyTorch's functional collectives: they return new tensors and take any form of a group.

Results are there when a function returns; :func:`wait_tensor` gives its argument. All of them are
differentiable: of the sum of all ranks' losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.collectives import root, split_sizes
from coredispatch.frontend.distributed.device_mesh import DeviceMesh
from coredispatch.frontend.distributed.groups import get_rank
from coredispatch.frontend.distributed.nn import functional
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.distributed.reductions import op_name
from coredispatch.frontend.distributed.world import world
from coredispatch.frontend.tensor import Tensor

__all__ = [
    "all_gather_single",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "broadcast",
    "permute_tensor",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "wait_tensor",
]


def _group(group: Any) -> ProcessGroup:
    """The process group meant by a group, ranks, a mesh, or a mesh and one of its dimensions."""
    if isinstance(group, ProcessGroup):
        return group
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise AssertionError(
                "Only 1D mesh is supported, pass in (DeviceMesh, int) together if mesh > 1D"
            )
        found: ProcessGroup = group.get_group()
        return found
    if isinstance(group, tuple):
        if len(group) != 2 or not isinstance(group[0], DeviceMesh):
            raise ValueError("Invalid tuple for group must be (DeviceMesh, int)")
        found = group[0].get_group(group[1])
        return found
    if isinstance(group, list) and group:
        return _of_ranks(group)
    raise ValueError(
        "Invalid type for group, must be one of List, Processgroup, DeviceMesh or "
        f"(DeviceMesh, int): {group!r}"
    )


def _of_ranks(ranks: list[Any]) -> ProcessGroup:
    """The group of these ranks of the job, or of that of several lists which this rank is in."""
    if isinstance(ranks[0], list):
        ranks = next((part for part in ranks if get_rank() in part), ranks[0])
    known = world()
    for group in (known.default, *known.groups.values()):
        if group is not None and list(group.ranks) == list(ranks):
            return group
    raise ValueError(f"there is no group of the ranks {ranks}\n  fix: new_group(ranks) first")


def wait_tensor(tensor: Tensor) -> Tensor:
    """`tensor`: the functions here return when their results are there."""
    return tensor


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """The tensor of rank `src` of the group, on all ranks."""
    found = _group(group)
    result: Tensor = functional.ops.broadcast(
        self, root("broadcast", "src", None, src, found), found
    )
    return result


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """`self` combined over all ranks by ``"sum"``, ``"avg"``, ``"min"``, ...

    Example::

        mean = all_reduce(x, "avg", mesh)
    """
    return functional.all_reduce(self, reduceOp, _group(group))


def all_reduce_coalesced(
    self: Sequence[Tensor], reduceOp: str, group: Any, tag: str = ""
) -> list[Tensor]:
    """:func:`all_reduce` of several tensors."""
    return [all_reduce(tensor, reduceOp, group, tag) for tensor in self]


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks, of one shape, joined along `gather_dim`."""
    return cd.cat(functional.all_gather(self, _group(group)), gather_dim)


def reduce_scatter_tensor(
    self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = ""
) -> Tensor:
    """`self` combined over all ranks by ``"sum"`` or ``"avg"``: this rank's part of `scatter_dim`.

    Raises AssertionError where the dimension does not divide into equal parts.
    """
    found = _group(group)
    length = self.shape[scatter_dim]
    if length % found.size():
        raise AssertionError(
            f"input dimension {scatter_dim} ({length}) must be a multiple of group_size "
            f"{found.size()}"
        )
    parts = self.split(length // found.size(), scatter_dim) if length else [self] * found.size()
    return functional.reduce_scatter(self, parts, op_name(reduceOp), found)


def all_to_all_single(
    self: Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Any,
    tag: str = "",
) -> Tensor:
    """The rows that the ranks have for this one.

    The sizes say how many come from and go to each rank; equal numbers where both are None. Raises
    AssertionError where one of them is None.
    """
    found = _group(group)
    if (output_split_sizes is None) != (input_split_sizes is None):
        raise AssertionError(
            "output_split_sizes and input_split_sizes must either be specified together or both "
            "set to None"
        )
    rows = self.shape[0]
    into = split_sizes("all_to_all_single", input_split_sizes, rows, found)
    out = into if output_split_sizes is None else list(output_split_sizes)
    result: Tensor = functional.ops.all_to_all(self, out, into, found)
    return result


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: Any, tag: str = "") -> Tensor:
    """The tensor of the rank that sends to this one: rank m sends to rank ``src_dst[m]``.

    Raises ValueError where `src_dst` is no permutation of the ranks.
    """
    found = _group(group)
    size, rank = found.size(), found.rank()
    if sorted(src_dst) != list(range(size)):
        raise ValueError(f"src_dst={list(src_dst)} is no permutation of {size} ranks")
    length = self.numel()
    into = [length * (to == src_dst[rank]) for to in range(size)]
    out = [length * (src_dst[source] == rank) for source in range(size)]
    came = all_to_all_single(self.reshape(-1), out, into, found)
    return came.reshape(self.shape)


all_gather_single = all_gather_tensor_autograd = all_gather_tensor
reduce_scatter_single = reduce_scatter_tensor_autograd = reduce_scatter_tensor
all_to_all_single_autograd = all_to_all_single
