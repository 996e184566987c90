"""Operators that draw random numbers: the values do not depend on the layout.

All ranks draw for the whole, from an agreed generator, and keep their parts: streams cannot be
entered in the middle, but nothing is gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.tensor.placements import Placement, Replicate, Shard
from coredispatch.frontend.distributed.tensor.sharding.choices import Call, Choice, Plan
from coredispatch.frontend.distributed.tensor.transfers import moved

__all__ = ["RULES"]

#: what they draw depends on the shape of their first tensor only
_LIKE = "rand_like randn_like randint_like exponential bernoulli".split()
_FILL = "uniform_ normal_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_".split()


def _plan(call: Call, count: int, drawn: Callable[..., Any]) -> Plan:
    """Any layout, for `count` results of the first tensor's shape.

    A rank that holds the whole calls the operator. Others call ``drawn(func, args, shape, part)``:
    ``part`` cuts their own part out of what was drawn for the whole, which has `shape`.
    """
    shape, mesh = tuple(call.tensors[0].shape), call.mesh
    choices = [Choice((Shard(d),), (Shard(d),) * count) for d in range(len(shape))]
    plan = Plan(choices, [shape] * count, random=True)

    def run(func: Any, args: tuple[Any, ...], outputs: list[tuple[Placement, ...]]) -> Any:
        if tuple(args[0].shape) == shape:
            return func(*args)
        source = tuple(Replicate() for _ in outputs[0])
        return drawn(func, args, shape, lambda whole: moved(whole, shape, mesh, source, outputs[0]))

    plan.run = run
    return plan


def like(call: Call) -> Plan | None:
    """Numbers in the shape of a tensor."""
    if len(call.tensors) != 1 or (call.name == "bernoulli" and "p" not in call.params):
        return Plan([], random=True)  # a probability for each element

    def drawn(func: Any, args: Any, shape: tuple[int, ...], part: Callable[[Any], Any]) -> Any:
        return part(func(args[0].new_zeros(()).expand(shape), *args[1:]))

    return _plan(call, 1, drawn)


def fill(call: Call) -> Plan | None:
    """Numbers written to a tensor."""
    if len(call.tensors) != 1:
        return Plan([], random=True)  # a probability for each element

    def drawn(func: Any, args: Any, shape: tuple[int, ...], part: Callable[[Any], Any]) -> Any:
        return args[0].copy_(part(func(args[0].new_empty(shape), *args[1:])))

    return _plan(call, 1, drawn)


def dropout(call: Call) -> Plan | None:
    """``native_dropout``: the mask of the whole is drawn, and its part applied to a part."""
    p = call.args[1]

    def drawn(func: Any, args: Any, shape: tuple[int, ...], part: Callable[[Any], Any]) -> Any:
        x = args[0]
        mask = part(func(x.new_zeros(()).expand(shape), *args[1:])[1])
        wide = x.float() if x.dtype.itemsize == 2 else x  # as kernels compute
        scale = 1.0 / (1.0 - p) if p < 1 else 0.0
        return cd.ops.dropout_backward(wide, mask, scale).to(x.dtype), mask

    return _plan(call, 2, drawn)


RULES = {
    **dict.fromkeys(_LIKE, like),
    **dict.fromkeys(_FILL, fill),
    **dict.fromkeys((f"{name}functional" for name in _FILL), like),
    "native_dropout": dropout,
}
