"""Collectives for a loss that all ranks compute alike: what is replicated has one gradient.

(In ``distributed.nn.functional`` the loss is the sum of the ranks' losses.) The four are those of
Shoeybi et al., "Megatron-LM", 2019, section 3.
"""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.autograd.function import Function
from coredispatch.frontend.distributed.collectives import all_gather, all_reduce
from coredispatch.frontend.distributed.process_group import ProcessGroup
from coredispatch.frontend.tensor import Tensor

__all__ = ["gather_parts", "own_part", "sum_of_parts", "to_parts", "bounds"]


def bounds(length: int, group: ProcessGroup) -> list[tuple[int, int]]:
    """Where the part of each rank begins and ends, as ``chunk`` divides."""
    size = -(-length // group.size())
    return [(min(r * size, length), min((r + 1) * size, length)) for r in range(group.size())]


def _slice(tensor: Tensor, dim: int, group: ProcessGroup) -> Tensor:
    begin, end = bounds(tensor.shape[dim], group)[group.rank()]
    return tensor.narrow(dim, begin, end - begin).contiguous()


def _gathered(part: Tensor, dim: int, length: int, group: ProcessGroup) -> Tensor:
    moved = part.movedim(dim, 0).contiguous()
    rest = moved.shape[1:]
    places = bounds(length, group)
    out = [cd.empty((end - begin, *rest), dtype=part.dtype) for begin, end in places]
    all_gather(out, moved, group)
    return cd.cat(out).movedim(0, dim)


class _ToParts(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup) -> Any:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = grad.clone()
        all_reduce(total, group=ctx.group)
        return total, None


class _SumOfParts(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup) -> Any:
        total = tensor.clone()
        all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


class _GatherParts(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int, length: int, group: ProcessGroup) -> Any:
        ctx.dim, ctx.group = dim, group
        return _gathered(tensor, dim, length, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _slice(grad, ctx.dim, ctx.group), None, None, None


class _OwnPart(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int, group: ProcessGroup) -> Any:
        ctx.dim, ctx.group, ctx.length = dim, group, tensor.shape[dim]
        return _slice(tensor, dim, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _gathered(grad, ctx.dim, ctx.length, ctx.group), None, None


def to_parts(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """A replicated tensor, on its way to computations of parts: gradients are added up."""
    return _ToParts.apply(tensor, group)  # type: ignore[no-any-return]


def sum_of_parts(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """The sum over the ranks, replicated."""
    return _SumOfParts.apply(tensor, group)  # type: ignore[no-any-return]


def gather_parts(tensor: Tensor, dim: int, length: int, group: ProcessGroup) -> Tensor:
    """The parts of all ranks along `dim`, `length` in all, replicated."""
    return _GatherParts.apply(tensor, dim, length, group)  # type: ignore[no-any-return]


def own_part(tensor: Tensor, dim: int, group: ProcessGroup) -> Tensor:
    """This rank's part of a replicated tensor along `dim`."""
    return _OwnPart.apply(tensor, dim, group)  # type: ignore[no-any-return]
