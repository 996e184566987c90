"""Collectives that return new tensors and can be differentiated.

The derivative is that of the sum of all ranks' losses: all ranks call ``backward``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed import operators
from coredispatch.frontend.distributed.collectives import count, root, same_dtype, split_sizes
from coredispatch.frontend.distributed.groups import resolved
from coredispatch.frontend.distributed.reductions import ReduceOp, op_name
from coredispatch.frontend.tensor import Tensor

#: what operators return is typed Any; the functions here say what it is
ops: Any = operators

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]


def _sum_or_average(name: str, op: Any) -> str:
    found = op_name(op)
    if found not in ("sum", "avg"):
        raise NotImplementedError(
            f"{name} with ReduceOp.{found.upper()} has no derivative here\n"
            "  fix: use ReduceOp.SUM or AVG; all_reduce has the others"
        )
    return found


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of rank `src`, on all ranks. The gradient at `src` is the sum of all."""
    found = resolved(group)
    result: Tensor = ops.broadcast(tensor, root("broadcast", "src", src, None, found), found)
    return result


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """`tensor` combined over all ranks. The gradient of an extremum goes to where it is."""
    name, found = op_name(op), resolved(group)
    combine = ops.all_reduce if name in ("sum", "avg") else ops.all_select
    result: Tensor = combine(tensor, name, found)
    return result


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """`tensor` combined over all ranks, on rank `dst`; a copy of `tensor` elsewhere."""
    found = resolved(group)
    target = root("reduce", "dst", dst, None, found)
    result: Tensor = ops.reduce(tensor, target, _sum_or_average("reduce", op), found)
    return result


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, which have one shape."""
    return tuple(ops.all_gather(tensor, resolved(group)).unbind(0))


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks on rank `dst`; zeros elsewhere."""
    found = resolved(group)
    target = root("gather", "dst", dst, None, found)
    return tuple(ops.gather(tensor, target, found).unbind(0))


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """``tensors[r]`` of rank `src`, on rank r. All ranks give tensors, of one shape."""
    found = resolved(group)
    count("scatter", tensors, found)
    result: Tensor = ops.scatter(
        cd.stack(list(tensors)), root("scatter", "src", src, None, found), found
    )
    return result


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None
) -> Tensor:
    """``input_list[r]`` combined over all ranks, on rank r. `output` says the shape."""
    found = resolved(group)
    count("reduce_scatter", input_list, found)
    name = _sum_or_average("reduce_scatter", op)
    result: Tensor = ops.reduce_scatter(cd.stack(list(input_list)), name, found)
    return result


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """What each rank has for this one, in the shapes of `output_tensor_list`."""
    found = resolved(group)
    count("all_to_all", output_tensor_list, found)
    count("all_to_all", input_tensor_list, found)
    same_dtype(*output_tensor_list, *input_tensor_list)
    out = [t.numel() for t in output_tensor_list]
    flat = cd.cat([t.reshape(-1) for t in input_tensor_list])
    came = ops.all_to_all(flat, out, [t.numel() for t in input_tensor_list], found)
    parts = came.split(out)
    return tuple(p.reshape(t.shape) for p, t in zip(parts, output_tensor_list, strict=True))


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """The rows that the ranks have for this one. `output` says how many."""
    found = resolved(group)
    out = split_sizes("all_to_all_single", output_split_sizes, output.shape[0], found)
    into = split_sizes("all_to_all_single", input_split_sizes, input.shape[0], found)
    result: Tensor = ops.all_to_all(input, out, into, found)
    return result
