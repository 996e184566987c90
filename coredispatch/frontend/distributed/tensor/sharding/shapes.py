"""Operators that move elements without computing: all of them are linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.distributed.tensor.placements import (
    Partial,
    Placement,
    Shard,
    local_layout,
)
from coredispatch.frontend.distributed.tensor.sharding.choices import Call, Choice, Plan

__all__ = ["RULES"]


def _partial(call: Call) -> list[Choice]:
    if not call.tensors[0].dtype.is_floating_point:
        return []
    kinds = [Partial(op) for op in ("sum", "avg", "max", "min")]
    return [Choice((p,) * len(call.tensors), (p,)) for p in kinds]


def _permuted(call: Call, order: Sequence[int]) -> Plan:
    shape = tuple(call.tensors[0].shape)
    choices = [Choice((Shard(d),), (Shard(i),)) for i, d in enumerate(order)]
    return Plan(choices + _partial(call), [tuple(shape[d] for d in order)])


def transpose(call: Call) -> Plan | None:
    """Two dimensions change places."""
    n = call.tensors[0].ndim
    order = list(range(n))
    if n:
        a, b = int(call.args[1]) % n, int(call.args[2]) % n
        order[a], order[b] = order[b], order[a]
    return _permuted(call, order)


def t(call: Call) -> Plan | None:
    """As :func:`transpose`, of the only two dimensions."""
    return _permuted(call, list(range(call.tensors[0].ndim))[::-1])


def permute(call: Call) -> Plan | None:
    """Dimensions in another order."""
    n = call.tensors[0].ndim
    return _permuted(call, [int(d) % n for d in call.args[1]])


def _to_shape(call: Call, out: tuple[int, ...], choices: list[Choice]) -> Plan:
    """Parts get the shape that the result's part has."""
    mesh = call.mesh

    def run(func: Any, args: tuple[Any, ...], outputs: list[tuple[Placement, ...]]) -> Any:
        shape, _ = local_layout(out, mesh, outputs[0])
        if call.name == "expand":
            return args[0].expand(shape).contiguous()  # parts may be written to
        return args[0].reshape(shape)

    return Plan(choices + _partial(call)[:1], [out], run)


def _full(shape: Sequence[int], count: int) -> tuple[int, ...]:
    """A shape with its -1 filled in."""
    known = 1
    for length in shape:
        known *= length if length != -1 else 1
    return tuple(count // max(known, 1) if n == -1 else int(n) for n in shape)


def _reshaped(call: Call, out: tuple[int, ...]) -> Plan:
    """A dimension that stays, or that is the first of those joined, or of those it falls into."""
    source = tuple(call.tensors[0].shape)
    choices = []
    for i, length in enumerate(source):
        place = _place(source, out, i)
        if place is None:
            continue
        even = length % call.mesh.size() == 0 and out[place] % call.mesh.size() == 0
        if length == out[place] or even:
            choices.append(Choice((Shard(i),), (Shard(place),)))
    return _to_shape(call, out, choices)


def _place(source: tuple[int, ...], out: tuple[int, ...], dim: int) -> int | None:
    """Where the outermost stride of dimension `dim` is in the new shape."""
    before = 1
    for length in source[:dim]:
        before *= length
    if source[dim] <= 1:
        return None
    passed = 1
    for i, length in enumerate(out):
        if passed == before and length > 1:
            return i
        passed *= length
    return None


def reshape(call: Call) -> Plan | None:
    """``reshape`` and ``view`` with a shape."""
    tensor, shape = call.tensors[0], call.args[1]
    if not isinstance(shape, (tuple, list)) or not tensor.numel():
        return None
    return _reshaped(call, _full(shape, tensor.numel()))


def flatten(call: Call) -> Plan | None:
    """Neighbouring dimensions become one."""
    tensor = call.tensors[0]
    n, shape = tensor.ndim, tuple(tensor.shape)
    if not n or not tensor.numel():
        return None
    begin, end = int(call.args[1]) % n, int(call.args[2]) % n
    return _reshaped(call, _full((*shape[:begin], -1, *shape[end + 1 :]), tensor.numel()))


def unsqueeze(call: Call) -> Plan | None:
    """One more dimension."""
    shape = tuple(call.tensors[0].shape)
    at = int(call.args[1]) % (len(shape) + 1)
    choices = [Choice((Shard(i),), (Shard(i + (i >= at)),)) for i in range(len(shape))]
    return Plan(choices + _partial(call), [(*shape[:at], 1, *shape[at:])])


def expand(call: Call) -> Plan | None:
    """Dimensions that stay as long as they are."""
    source, wanted = tuple(call.tensors[0].shape), call.args[1]
    if not isinstance(wanted, (tuple, list)):
        return None
    more = len(wanted) - len(source)
    out = tuple(int(n) if n != -1 else source[i - more] for i, n in enumerate(wanted))
    choices = [
        Choice((Shard(i),), (Shard(i + more),))
        for i, length in enumerate(source)
        if length == out[i + more]
    ]
    return _to_shape(call, out, choices)


def parts(call: Call) -> Plan | None:
    """``split``, ``chunk``: the other dimensions may be sharded."""
    tensor = call.tensors[0]
    n, shape = tensor.ndim, list(tensor.shape)
    dim = int(call.args[2]) % n
    size = call.args[1]
    if not shape[dim]:
        return None
    if call.name == "chunk":
        size = -(-shape[dim] // int(size))
    lengths = (
        list(size)
        if isinstance(size, (tuple, list))
        else [min(size, shape[dim] - i) for i in range(0, shape[dim], size)]
    )
    count = len(lengths)
    shapes = [(*shape[:dim], int(length), *shape[dim + 1 :]) for length in lengths]
    choices = [Choice((Shard(i),), (Shard(i),) * count) for i in range(n) if i != dim]
    choices += [Choice((p,), (p,) * count) for c in _partial(call) for p in c.inputs]
    return Plan(choices, shapes)


def joined(call: Call) -> Plan | None:
    """``cat``: the other dimensions may be sharded."""
    if any(not t.ndim or tuple(t.shape) == (0,) for t in call.tensors):
        return None
    n, number = call.tensors[0].ndim, len(call.tensors)
    dim = int(call.args[1]) % n
    shape = list(call.tensors[0].shape)
    shape[dim] = sum(t.shape[dim] for t in call.tensors)
    choices = [Choice((Shard(i),) * number, (Shard(i),)) for i in range(n) if i != dim]
    same = len({t.dtype for t in call.tensors}) == 1
    return Plan(choices + (_partial(call) if same else []), [tuple(shape)])


RULES = {
    "transpose": transpose,
    "t": t,
    "permute": permute,
    **dict.fromkeys(("reshape", "view"), reshape),
    "flatten": flatten,
    "unsqueeze": unsqueeze,
    "expand": expand,
    **dict.fromkeys(("split", "chunk"), parts),
    "cat": joined,
}
