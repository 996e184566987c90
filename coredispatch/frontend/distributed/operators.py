"""The collectives as operators of the table, and the rows for arrays of NumPy.

Two forms each. The functional ones return new tensors and have derivatives; those with ``_`` write
into tensors and may go on in the background (the Work is then in ``process_group.LAST``). Ranks are
those of the group. ``group`` is a :class:`ProcessGroup`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import same, same_shape
from coredispatch.registry import Operator, primitive

__all__ = ["OPERATORS"]

Declare = Callable[[Callable[..., Any]], Operator]


def _collective(**details: Any) -> Declare:
    return primitive(namespace=(), method=False, **details)


def _writes(*names: str, name: str) -> Declare:
    return primitive(
        name=f"c10d::{name}", mutates=names, namespace=(), method=False, differentiable=False
    )


def _stacked(self: Any, *rest: Any) -> tuple[int, ...]:
    return (rest[-1].size(), *self.shape)


def _one_of(self: Any, *rest: Any) -> tuple[int, ...]:
    return tuple(self.shape[1:])


# ---- functional forms -------------------------------------------------------------------------


@_collective(name="c10d::all_reduce", out=same_shape, dtype=same)
def all_reduce(self: Tensor, op: str, group: object) -> Tensor:
    """The sum or the average over the ranks, on all of them."""


@all_reduce.vjp
def _(grad, op, group):
    return all_reduce(grad, op, group)


@_collective(name="c10d::all_select", out=same_shape, dtype=same)
def all_select(self: Tensor, op: str, group: object) -> Tensor:
    """The product, minimum, maximum, ... over the ranks, on all of them."""


@all_select.vjp
def _(grad, out, self, op, group):
    total = all_reduce(grad, "sum", group)
    if op == "product":  # of the others' values, not out / self: that may be 0
        every, rank = all_gather(self, group), group.rank()
        return total * lazy.cat([every[:rank], every[rank + 1 :]], 0).prod(0)
    chosen = (self == out).to(grad.dtype)
    return total * chosen / all_reduce(chosen, "sum", group)  # ties share it, as in amax


@_collective(name="c10d::broadcast", out=same_shape, dtype=same)
def broadcast(self: Tensor, src: int, group: object) -> Tensor:
    """The tensor of rank `src`, on all ranks."""


@broadcast.vjp
def _(grad, src, group):
    return reduce(grad, src, "sum", group) * float(group.rank() == src)


@_collective(name="c10d::reduce", out=same_shape, dtype=same)
def reduce(self: Tensor, dst: int, op: str, group: object) -> Tensor:
    """The sum or the average over the ranks, on rank `dst`; elsewhere a copy of `self`."""


@reduce.vjp
def _(grad, dst, op, group):
    back = broadcast(grad, dst, group)
    return back / group.size() if op == "avg" else back


@_collective(name="c10d::all_gather", out=_stacked, dtype=same)
def all_gather(self: Tensor, group: object) -> Tensor:
    """The tensors of all ranks, stacked, on all ranks."""


@all_gather.vjp
def _(grad, group):
    return reduce_scatter(grad, "sum", group)


@_collective(name="c10d::reduce_scatter", out=_one_of, dtype=same)
def reduce_scatter(self: Tensor, op: str, group: object) -> Tensor:
    """Row r of the sum (or average) over the ranks, on rank r."""


@reduce_scatter.vjp
def _(grad, op, group):
    back = all_gather(grad, group)
    return back / group.size() if op == "avg" else back


@_collective(name="c10d::gather", out=_stacked, dtype=same)
def gather(self: Tensor, dst: int, group: object) -> Tensor:
    """The tensors of all ranks, stacked, on rank `dst`; zeros elsewhere."""


@gather.vjp
def _(grad, dst, group):
    return scatter(grad, dst, group)


@_collective(name="c10d::scatter", out=_one_of, dtype=same)
def scatter(self: Tensor, src: int, group: object) -> Tensor:
    """Row r of the tensor that rank `src` has, on rank r."""


@scatter.vjp
def _(grad, src, group):
    return gather(grad, src, group)


def _exchanged(self: Any, out_sizes: Any, in_sizes: Any, group: Any) -> tuple[int, ...]:
    return (sum(out_sizes), *self.shape[1:])


@_collective(name="c10d::all_to_all", out=_exchanged, dtype=same)
def all_to_all(self: Tensor, out_sizes: IntList, in_sizes: IntList, group: object) -> Tensor:
    """Send ``in_sizes[r]`` rows to rank r; the rows that came, ``out_sizes[r]`` from rank r."""


@all_to_all.vjp
def _(grad, out_sizes, in_sizes, group):
    return all_to_all(grad, in_sizes, out_sizes, group)


# ---- forms that write -------------------------------------------------------------------------


@_writes("tensors", name="all_reduce_")
def all_reduce_(tensors: list[Tensor], op: str, group: object, background: bool) -> None:
    """Combine tensors over the ranks, in place."""


@_writes("self", name="broadcast_")
def broadcast_(self: Tensor, src: int, group: object, background: bool) -> None:
    """Copy the tensor of `src` to all."""


@_writes("self", name="reduce_")
def reduce_(self: Tensor, dst: int, op: str, group: object, background: bool) -> None:
    """Combine over the ranks into the tensor of `dst`."""


@_writes("outputs", name="all_gather_")
def all_gather_(outputs: list[Tensor], self: Tensor, group: object, background: bool) -> None:
    """Fill `outputs` with the tensors of all ranks; sizes may differ."""


@_writes("output", name="all_gather_into_")
def all_gather_into_(output: Tensor, self: Tensor, group: object, background: bool) -> None:
    """Fill `output` with the tensors of all ranks, one behind the other."""


@_writes("output", name="reduce_scatter_")
def reduce_scatter_(
    output: Tensor, inputs: list[Tensor], op: str, group: object, background: bool
) -> None:
    """Combine ``inputs[r]`` of all ranks into `output` of rank r."""


@_writes("output", name="reduce_scatter_into_")
def reduce_scatter_into_(
    output: Tensor, self: Tensor, op: str, group: object, background: bool
) -> None:
    """Combine part r of all ranks into `output` of rank r."""


@_writes("outputs", name="gather_")
def gather_(outputs: list[Tensor], self: Tensor, dst: int, group: object, background: bool) -> None:
    """Fill `outputs` of `dst`; it is empty elsewhere."""


@_writes("output", name="scatter_")
def scatter_(
    output: Tensor, inputs: list[Tensor], src: int, group: object, background: bool
) -> None:
    """Fill `output` of rank r with ``inputs[r]`` of `src`; `inputs` is empty elsewhere."""


@_writes("outputs", name="all_to_all_")
def all_to_all_(
    outputs: list[Tensor], inputs: list[Tensor], group: object, background: bool
) -> None:
    """Fill ``outputs[r]`` with what rank r has in its ``inputs`` for this rank."""


@_writes("output", name="all_to_all_into_")
def all_to_all_into_(
    output: Tensor,
    self: Tensor,
    out_sizes: IntList,
    in_sizes: IntList,
    group: object,
    background: bool,
) -> None:
    """Fill the rows of `output` with what the ranks have for this rank."""


@primitive(name="c10d::send", namespace=(), method=False, differentiable=False)
def send(self: Tensor, dst: int, tag: int, group: object, background: bool) -> None:
    """Send to one rank."""


@_writes("self", name="recv_")
def recv_(self: Tensor, src: int | None, tag: int, group: object, background: bool) -> None:
    """Receive from one rank, or from any."""


@primitive(name="c10d::barrier", namespace=(), method=False, differentiable=False)
def barrier(token: Tensor, group: object, background: bool) -> None:
    """Return when all ranks have called it. `token` says on which device."""


OPERATORS: tuple[Operator, ...] = (
    all_reduce,
    all_select,
    broadcast,
    reduce,
    all_gather,
    reduce_scatter,
    gather,
    scatter,
    all_to_all,
    all_reduce_,
    broadcast_,
    reduce_,
    all_gather_,
    all_gather_into_,
    reduce_scatter_,
    reduce_scatter_into_,
    gather_,
    scatter_,
    all_to_all_,
    all_to_all_into_,
    send,
    recv_,
    barrier,
)
