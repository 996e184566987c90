"""The collectives as functions of tensors, with PyTorch's names and arguments.

All ranks of the group call the same function with tensors of the same shape and dtype. With
``async_op=True`` they return a :class:`Work` at once, else None when the result is there. A process
that is no part of the group gets a warning and None.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed import operators as ops
from coredispatch.frontend.distributed.groups import (
    NoMemberError,
    default_group,
    resolved,
    warn_not_in_group,
)
from coredispatch.frontend.distributed.process_group import LAST, ProcessGroup
from coredispatch.frontend.distributed.reductions import ReduceOp, op_name
from coredispatch.frontend.distributed.work import Work
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.errors import ArgumentError

__all__ = [
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
]


def _members_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """Warn and do nothing in a process that is no part of the group."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except NoMemberError:
            return warn_not_in_group(function.__name__)

    return call


def bare(value: Any, name: str) -> Any:
    """A tensor as collectives take it: its gradient history is none of theirs."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type coredispatch.Tensor, "
            f"but got {type(value)} instead."
        )
    return value.detach() if value.requires_grad else value


def bare_list(values: Any, name: str) -> list[Any]:
    """A list of tensors, as :func:`bare`."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type "
            f"list[coredispatch.Tensor], but got {type(values)} instead."
        )
    return [bare(value, name) for value in values]


def same_dtype(*tensors: Any) -> None:
    """Refuse tensors of several dtypes."""
    for tensor in tensors:
        if tensor.dtype != tensors[0].dtype:
            raise ArgumentError(
                "Invalid usage of tensors with different dtypes: found "
                f"{tensors[0].dtype} and {tensor.dtype}",
                fix="use one dtype",
            )


def _same_shape(name: str, expected: Any, tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        if tensor.numel() != expected:
            raise ArgumentError(
                f"{name}: a tensor has {tensor.numel()} elements where {expected} are needed",
                fix="give each rank's part the size of that part",
            )


def count(name: str, tensors: Sequence[Any], group: ProcessGroup) -> None:
    """Refuse a list that has not one tensor for each rank."""
    if len(tensors) != group.size():
        raise ArgumentError(
            f"{name}: a list of {len(tensors)} tensors for {group.size()} ranks",
            fix="give one tensor for each rank of the group",
        )


def root(name: str, what: str, rank: int | None, group_rank: int | None, group: Any) -> int:
    """The rank in the group that `rank` in the job, or `group_rank`, means."""
    if group_rank is not None and rank is not None:
        raise ValueError(f"Can't specify both group_{what} and {what}")
    given = rank if group_rank is None else group_rank
    if given is None:
        raise ValueError(f"Must specify {what} or group_{what}")
    try:
        number = operator.index(given)
    except TypeError:
        raise TypeError(
            f"{name}: the rank {what}={given!r} is no integer\n  fix: pass the number of a rank"
        ) from None
    if group_rank is None:
        if number not in group.ranks:
            raise ArgumentError(
                f"{name}: Global rank {number} is not part of group {group}",
                fix=f"give {what} as a rank of the job, one of {_some(group.ranks)}",
            )
        return int(group.ranks.index(number))
    if not 0 <= number < group.size():
        raise ArgumentError(
            f"{name}: group_{what}={number} is not one of {group.size()} ranks",
            fix=f"give group_{what} as a rank of the group, of 0..{group.size() - 1}",
        )
    return number


def _some(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def under_way(background: bool, result: Any) -> Work | None:
    """What the function returns: the Work where the caller does not want to wait."""
    if not background:
        return None
    work, LAST.work = LAST.work, None
    if work is not None:
        work._result = result
    return work


@_members_only
def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine `tensor` over all ranks, in place.

    A sparse tensor becomes the sum, or the average, of all ranks' elements.

    Example::

        x = cd.ones(2) * dist.get_rank()
        dist.all_reduce(x)               # on two ranks: tensor([1., 1.])
    """
    found = resolved(group)
    if isinstance(tensor, Tensor) and tensor.requires_grad and tensor.is_sparse:
        with no_grad():  # a sparse tensor gets other memory, which is seen by no view
            ops.all_reduce_([tensor], op_name(op), found, async_op)
    else:
        ops.all_reduce_([bare(tensor, "tensor")], op_name(op), found, async_op)
    return under_way(async_op, [tensor]) if async_op else None


@_members_only
def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    """Combine several tensors of one dtype as one message; a Future with ``async_op``."""
    found = resolved(group)
    plain = bare_list(list(tensors), "tensors")
    same_dtype(*plain)
    ops.all_reduce_(plain, op_name(op), found, async_op)
    work = under_way(async_op, list(tensors))
    return None if work is None else work.get_future()


@_members_only
def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Copy `tensor` of rank `src` (in the job; `group_src` in the group) to all ranks."""
    found = resolved(group)
    source = root("broadcast", "src", src, group_src, found)
    ops.broadcast_(bare(tensor, "tensor"), source, found, async_op)
    return under_way(async_op, [tensor])


@_members_only
def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine over all ranks into `tensor` of rank `dst`; that of the others stays as it is."""
    found = resolved(group)
    target = root("reduce", "dst", dst, group_dst, found)
    ops.reduce_(bare(tensor, "tensor"), target, op_name(op), found, async_op)
    return under_way(async_op, [tensor])


@_members_only
def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Fill `tensor_list` with `tensor` of all ranks. Their sizes may differ."""
    found = resolved(group)
    outputs, own = bare_list(tensor_list, "tensor_list"), bare(tensor, "tensor")
    count("all_gather", outputs, found)
    same_dtype(own, *outputs)
    _same_shape("all_gather", own.numel(), [outputs[found.rank()]])
    ops.all_gather_(outputs, own, found, async_op)
    return under_way(async_op, tensor_list)


@_members_only
def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """:func:`all_gather` of several tensors; a Future with ``async_op``."""
    found = resolved(group)
    if len(output_tensor_lists) != found.size():
        raise ArgumentError(
            f"all_gather_coalesced: {len(output_tensor_lists)} lists for {found.size()} ranks",
            fix="give a list for each rank of the group",
        )
    work = None
    for i, tensor in enumerate(input_tensor_list):
        work = all_gather([row[i] for row in output_tensor_lists], tensor, found, async_op)
    if work is None:
        return None
    work._result = output_tensor_lists
    return work.get_future()


@_members_only
def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Fill `output_tensor` with `input_tensor` of all ranks, one behind the other."""
    found = resolved(group)
    output, own = bare(output_tensor, "output_tensor"), bare(input_tensor, "input_tensor")
    same_dtype(own, output)
    _same_shape("all_gather_into_tensor", own.numel() * found.size(), [output])
    ops.all_gather_into_(output, own, found, async_op)
    return under_way(async_op, [output_tensor])


all_gather_single = all_gather_into_tensor


@_members_only
def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Combine ``input_list[r]`` of all ranks into `output` of rank r."""
    found = resolved(group)
    inputs, target = bare_list(input_list, "input_list"), bare(output, "output")
    count("reduce_scatter", inputs, found)
    same_dtype(target, *inputs)
    _same_shape("reduce_scatter", target.numel(), [inputs[found.rank()]])
    ops.reduce_scatter_(target, inputs, op_name(op), found, async_op)
    return under_way(async_op, [output])


@_members_only
def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Combine part r of `input` of all ranks into `output` of rank r."""
    found = resolved(group)
    target, own = bare(output, "output"), bare(input, "input")
    same_dtype(target, own)
    _same_shape("reduce_scatter_tensor", target.numel() * found.size(), [own])
    ops.reduce_scatter_into_(target, own, op_name(op), found, async_op)
    return under_way(async_op, [output])


reduce_scatter_single = reduce_scatter_tensor


def _list_at(
    end: str, name: str, given: list[Tensor] | None, here: bool, own: Any, group: ProcessGroup
) -> Any:
    """The list that only the rank at one end gives, with one tensor per rank; elsewhere none."""
    argument = f"{name}_list"
    if not here:
        if given:
            raise ValueError(f"Argument ``{argument}`` must NOT be specified on non-{end} ranks.")
        return []
    if not given:
        raise ValueError(f"Argument ``{argument}`` must be specified on {end} rank.")
    tensors = bare_list(given, argument)
    count(name, tensors, group)
    same_dtype(own, *tensors)
    return tensors


@_members_only
def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Fill `gather_list` of rank `dst` (0) with `tensor` of all ranks; None elsewhere."""
    found = resolved(group)
    dst = 0 if dst is None and group_dst is None else dst
    target = root("gather", "dst", dst, group_dst, found)
    own = bare(tensor, "tensor")
    outputs = _list_at("destination", "gather", gather_list, found.rank() == target, own, found)
    if outputs:
        _same_shape("gather", own.numel(), [outputs[target]])
    ops.gather_(outputs, own, target, found, async_op)
    return under_way(async_op, gather_list)


@_members_only
def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Fill `tensor` of rank r with ``scatter_list[r]`` of rank `src` (0)."""
    found = resolved(group)
    src = 0 if src is None and group_src is None else src
    source = root("scatter", "src", src, group_src, found)
    target = bare(tensor, "tensor")
    inputs = _list_at("source", "scatter", scatter_list, found.rank() == source, target, found)
    if inputs:
        _same_shape("scatter", target.numel(), [inputs[source]])
    ops.scatter_(target, inputs, source, found, async_op)
    return under_way(async_op, [tensor])


@_members_only
def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Fill ``output_tensor_list[r]`` with what rank r has for this one in its input list."""
    found = resolved(group)
    outputs = bare_list(output_tensor_list, "output_tensor_list")
    inputs = bare_list(input_tensor_list, "input_tensor_list")
    count("all_to_all", outputs, found)
    count("all_to_all", inputs, found)
    same_dtype(*inputs, *outputs)
    own = found.rank()  # what this rank sends to itself; the others' sizes only they know
    _same_shape("all_to_all", inputs[own].numel(), [outputs[own]])
    ops.all_to_all_(outputs, inputs, found, async_op)
    return under_way(async_op, output_tensor_list)


def split_sizes(name: str, sizes: Sequence[int] | None, rows: int, group: ProcessGroup) -> Any:
    """The sizes of the parts of the first dimension; equal ones by default."""
    if not sizes:
        if rows % group.size():
            raise ArgumentError(
                f"{name}: {rows} rows do not divide into {group.size()} equal parts",
                fix="give the sizes of the parts",
            )
        return [rows // group.size()] * group.size()
    if len(sizes) != group.size() or sum(sizes) != rows:
        raise ArgumentError(
            f"{name}: the sizes {list(sizes)} are not {group.size()} parts of {rows} rows",
            fix="give one size per rank; their sum is the first dimension",
        )
    return list(sizes)


@_members_only
def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send rows of `input` to the ranks; `output` becomes what came, in their order."""
    found = resolved(group)
    target, own = bare(output, "output"), bare(input, "input")
    same_dtype(target, own)
    out = split_sizes("all_to_all_single", output_split_sizes, target.shape[0], found)
    into = split_sizes("all_to_all_single", input_split_sizes, own.shape[0], found)
    rank, rows = found.rank(), (math.prod(own.shape[1:]), math.prod(target.shape[1:]))
    if (into[rank], rows[0]) != (out[rank], rows[1]):
        raise ArgumentError(
            f"all_to_all_single: this rank sends {into[rank]} rows of {tuple(own.shape[1:])} to "
            f"itself, and output has {out[rank]} of {tuple(target.shape[1:])} for them",
            fix="let output have the rows that come; output_split_sizes says how many from whom",
        )
    ops.all_to_all_into_(target, own, out, into, found, async_op)
    return under_way(async_op, [output])


@_members_only
def barrier(
    group: Any = None,
    async_op: bool = False,
    device_ids: Any = None,
    timeout: timedelta | None = None,
) -> Work | None:
    """Return when all ranks have called it."""
    found = default_group() if group is None else resolved(group)
    device = next(iter(found.communicators))
    token = cd.empty((0,), device=device)
    if timeout is None:
        ops.barrier(token, found, async_op)
    else:
        before = found.timeout
        found.set_timeout(timeout)
        try:
            ops.barrier(token, found, async_op)
        finally:
            found.set_timeout(before)
    return under_way(async_op, None)
