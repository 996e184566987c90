"""Random numbers under ``vmap``: refused, the same for all samples, or different ones.

Every random operator is made of three factories. A call of one of them inside ``vmap`` has no
argument that could carry a level: a mode brings it to the layer, which asks the levels in force.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.transforms.levels import Batched, Vmap, current, wrapped
from coredispatch.plugin import OpError, describe_call

__all__ = ["randomized"]


def randomized(call: Any, args: tuple[Any, ...]) -> Any:
    """A random operator on arguments that belong to no level."""
    levels = [level for level in current() if isinstance(level, Vmap)]
    for level in levels:
        if level.randomness == "error":
            error = OpError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                "operation out of vmap",
                fix="vmap(f, randomness='different')",
            )
            error.call = describe_call(call.op, args)
            raise error
    if call.op.kind != "primitive":
        return call.decompose(args) if call.op.decomposition is not None else call.below(args)
    drawn = [level for level in levels if level.randomness == "different"]
    size, *rest = args  # all random primitives are factories
    out = call.below(((*(level.size for level in drawn), *size), *rest))
    for level in drawn:
        out = wrapped(Batched(out, level.number))
    return out
