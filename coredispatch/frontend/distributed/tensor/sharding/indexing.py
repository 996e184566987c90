"""Indices without tensors: dimensions of which they take everything may be sharded."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.distributed.tensor.placements import (
    Partial,
    Placement,
    Shard,
    local_layout,
)
from coredispatch.frontend.distributed.tensor.sharding.choices import Call, Choice, Plan
from coredispatch.ops.indexing.rules import indexed

__all__ = ["RULES"]


def _whole_dims(index: tuple[Any, ...], shape: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """``(dimension, where it is in the result)`` of what is taken whole; None for other indices."""
    if not all(i is None or i is ... or type(i) in (int, slice) for i in index):
        return None
    named = sum(i is not None and i is not ... for i in index)
    rest = [slice(None)] * (len(shape) - named)
    at = index.index(...) if ... in index else len(index)
    found, dim, place = [], 0, 0
    for i in (*index[:at], *rest, *index[at + 1 :]):
        if i is None:
            place += 1
            continue
        if isinstance(i, slice):
            if i.indices(shape[dim]) == (0, shape[dim], 1):
                found.append((dim, place))
            place += 1
        dim += 1
    return found


def _choices(call: Call, pairs: list[tuple[int, int]]) -> list[Choice]:
    choices = [Choice((Shard(a),), (Shard(b),)) for a, b in pairs]
    if call.tensors[0].dtype.is_floating_point:
        choices.append(Choice((Partial(),), (Partial(),)))
    return choices


def getitem(call: Call) -> Plan | None:
    """``x[index]``."""
    if len(call.tensors) != 1:
        return None
    index, shape = call.args[1], tuple(call.tensors[0].shape)
    pairs = _whole_dims(index, shape)
    return None if pairs is None else Plan(_choices(call, pairs), [indexed(shape, index)])


def getitem_backward(call: Call) -> Plan | None:
    """Zeros with a gradient at the index."""
    if len(call.tensors) != 1:
        return None
    index, shape = call.args[1], tuple(call.args[2])
    pairs = _whole_dims(index, shape)
    if pairs is None:
        return None

    def run(func: Any, args: tuple[Any, ...], outputs: list[tuple[Placement, ...]]) -> Any:
        return func(*args[:2], local_layout(shape, call.mesh, outputs[0])[0])

    return Plan(_choices(call, [(b, a) for a, b in pairs]), [shape], run)


RULES = {"getitem": getitem, "getitem_backward": getitem_backward}
