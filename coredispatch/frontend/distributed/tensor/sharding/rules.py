"""Which rule an operator has. Without one, all of its operands are replicated."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from coredispatch.frontend.distributed.tensor.sharding import (
    drawing,
    elementwise,
    indexing,
    matrices,
    networks,
    shapes,
)
from coredispatch.frontend.distributed.tensor.sharding.choices import Call, Plan
from coredispatch.frontend.transforms.batching.elementwise import ELEMENTWISE

__all__ = ["rule_of"]

Rule = Callable[[Call], Plan | None]

_RULES: dict[str, Rule] = {
    **drawing.RULES,
    **elementwise.RULES,
    **indexing.RULES,
    **matrices.RULES,
    **networks.RULES,
    **shapes.RULES,
}


def _none(call: Call) -> Plan | None:
    return None


@cache
def rule_of(op: Any) -> Rule:
    """The rule of an operator."""
    found = _RULES.get(op.name)
    if found is not None:
        return found
    family = op.__module__ or ""
    functional = op.name.removesuffix("_")
    if op.name in ELEMENTWISE or functional in ELEMENTWISE:
        return elementwise.pointwise
    if family == "coredispatch.ops.nn.optim_steps" and op.mutates:
        return elementwise.pointwise
    return _RULES.get(functional, _none)
