"""What a rule says of a call: the layouts in which each rank can compute from its parts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coredispatch.frontend.distributed.tensor.placements import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _StridedShard,
)

__all__ = ["R", "Call", "Choice", "Plan", "best", "cost", "with_strided"]

R = Replicate()


@dataclass(frozen=True)
class Choice:
    """Placements along one mesh dimension: of tensors that go in, and of those that come out."""

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]


@dataclass
class Call:
    """A call, as rules see it: DTensors in place, shapes of the whole.

    Attributes:
        args: complete, in the order of the operator's parameters.
        params: the names of the parameters.
        tensors: the tensors among them, lists opened, in order.
        mesh: the ranks.
    """

    name: str
    args: tuple[Any, ...]
    tensors: list[Any]
    mesh: Any
    params: tuple[str, ...] = ()


@dataclass
class Plan:
    """The choices, to which "replicate everything" is added, and the shapes of the results.

    Attributes:
        shapes: of the results, for choices that shard one of them.
        run: ``run(function, args, placements of the results)``, where a rank's call is not simply
            that of its parts; ``args`` are complete, with parts in place of tensors.
        random: whether a call draws random values.
    """

    choices: list[Choice]
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    run: Callable[[Any, tuple[Any, ...], list[tuple[Placement, ...]]], Any] | None = None
    random: bool = False


def cost(tensor: Any, source: Placement, target: Placement) -> float:
    """How many elements are sent for one tensor; infinite for what must not be."""
    if source == target:
        return 0.0
    size = float(max(tensor.numel(), 1))
    if isinstance(target, Partial):
        return 0.5 if isinstance(source, Replicate) and target.reduce_op == "sum" else math.inf
    if isinstance(source, Replicate):
        return 0.0
    if isinstance(source, Partial):
        return 2 * size if isinstance(target, Replicate) else size
    return size + 1 if isinstance(target, Shard) else size


def best(choices: Sequence[Choice], tensors: Sequence[Any], current: Sequence[Placement]) -> Choice:
    """The choice for which least is sent; the first of several."""
    return min(
        choices,
        key=lambda c: sum(
            cost(t, a, b) for t, a, b in zip(tensors, current, c.inputs, strict=True)
        ),
    )


def with_strided(choices: list[Choice], current: Sequence[Placement]) -> list[Choice]:
    """The choices, and where parts lie strided the same choices of parts that do.

    A rule says which dimension is divided; in what order mesh dimensions divide it is all the same.
    """
    factors = {p.split_factor for p in current if isinstance(p, _StridedShard)}

    def strided(placements: tuple[Placement, ...], factor: int) -> tuple[Placement, ...]:
        return tuple(
            _StridedShard(p.dim, split_factor=factor) if isinstance(p, Shard) else p
            for p in placements
        )

    more = [
        Choice(strided(c.inputs, factor), strided(c.outputs, factor))
        for factor in factors
        for c in choices
    ]
    return [*choices, *more] if more else choices
