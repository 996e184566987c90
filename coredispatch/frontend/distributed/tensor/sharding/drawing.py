"""Operators that draw random numbers: the values do not depend on the layout.

All ranks draw for the whole, from an agreed generator, and keep their parts: streams cannot be
entered in the middle, but nothing is gathered.
"""

from __future__ import annotations

from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.tensor.placements import Placement, Replicate, Shard
from coredispatch.frontend.distributed.tensor.sharding.choices import Call, Choice, Plan
from coredispatch.frontend.distributed.tensor.transfers import moved

__all__ = ["RULES"]

#: what they draw depends on the shape of their first tensor only
_LIKE = "rand_like randn_like randint_like exponential bernoulli".split()
_FILL = "uniform_ normal_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_".split()


def _part(whole: Any, shape: tuple[int, ...], mesh: Any, layout: tuple[Placement, ...]) -> Any:
    source = tuple(Replicate() for _ in layout)
    return moved(whole, shape, mesh, source, layout)


def _kept(count: int, call: Call) -> Plan:
    shape = tuple(call.tensors[0].shape)
    choices = [Choice((Shard(d),), (Shard(d),) * count) for d in range(len(shape))]
    return Plan(choices, [shape] * count, random=True)


def like(call: Call) -> Plan | None:
    """Numbers in the shape of a tensor."""
    if len(call.tensors) != 1 or (call.name == "bernoulli" and "p" not in call.params):
        return Plan([], random=True)  # a probability for each element
    plan = _kept(1, call)
    shape, mesh = plan.shapes[0], call.mesh

    def run(func: Any, args: tuple[Any, ...], outputs: list[tuple[Placement, ...]]) -> Any:
        if tuple(args[0].shape) == shape:
            return func(*args)
        of_whole = args[0].new_zeros(()).expand(shape)
        return _part(func(of_whole, *args[1:]), shape, mesh, outputs[0])

    plan.run = run
    return plan


def fill(call: Call) -> Plan | None:
    """Numbers written to a tensor."""
    if len(call.tensors) != 1:
        return Plan([], random=True)  # a probability for each element
    plan = _kept(1, call)
    shape, mesh = plan.shapes[0], call.mesh

    def run(func: Any, args: tuple[Any, ...], outputs: list[tuple[Placement, ...]]) -> Any:
        if tuple(args[0].shape) == shape:
            return func(*args)
        whole = func(args[0].new_empty(shape), *args[1:])
        return args[0].copy_(_part(whole, shape, mesh, outputs[0]))

    plan.run = run
    return plan


def dropout(call: Call) -> Plan | None:
    """``native_dropout``: the mask of the whole is drawn, and its part applied to a part."""
    plan = _kept(2, call)
    shape, mesh = plan.shapes[0], call.mesh
    p = call.args[1]

    def run(func: Any, args: tuple[Any, ...], outputs: list[tuple[Placement, ...]]) -> Any:
        x = args[0]
        if tuple(x.shape) == shape:
            return func(*args)
        mask = _part(func(x.new_zeros(()).expand(shape), *args[1:])[1], shape, mesh, outputs[0])
        wide = x.float() if x.dtype.itemsize == 2 else x  # as kernels compute
        scale = 1.0 / (1.0 - p) if p < 1 else 0.0
        return cd.ops.dropout_backward(wide, mask, scale).to(x.dtype), mask

    plan.run = run
    return plan


RULES = {
    **dict.fromkeys(_LIKE, like),
    **dict.fromkeys(_FILL, fill),
    **dict.fromkeys((f"{name}functional" for name in _FILL), like),
    "native_dropout": dropout,
}
