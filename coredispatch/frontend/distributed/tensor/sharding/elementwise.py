"""Elementwise operators, and reductions."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.distributed.tensor.placements import Partial, Placement, Shard
from coredispatch.frontend.distributed.tensor.sharding.choices import Call, Choice, Plan, R
from coredispatch.ops.support.rules import broadcast_shapes

__all__ = ["RULES", "pointwise"]

#: linear in all of their tensors together
_SUMS = frozenset("add sub rsub neg positive clone detach contiguous to_dtype copy zero".split())
#: linear in the first tensor alone, the others being equal on all ranks
_SCALED = frozenset("mul div".split())


def pointwise(call: Call) -> Plan | None:
    """Any dimension of the result, in all operands that have it."""
    shapes = [tuple(t.shape) for t in call.tensors]
    out = broadcast_shapes(shapes)
    choices = []
    for dim, length in enumerate(out):
        inputs: list[Placement] = []
        for shape in shapes:
            own = dim - (len(out) - len(shape))
            inputs.append(Shard(own) if own >= 0 and shape[own] == length else R)
        if any(p != R for p in inputs):
            choices.append(Choice(tuple(inputs), (Shard(dim),)))
    return Plan(choices + _partial(call, shapes, out), [out])


def _inexact(dtype: Any) -> bool:
    return bool(dtype.is_floating_point or dtype.is_complex)


def _partial(call: Call, shapes: list[tuple[int, ...]], out: tuple[int, ...]) -> list[Choice]:
    name, count = call.name.removesuffix("_"), len(call.tensors)
    floating = all(_inexact(t.dtype) for t in call.tensors)
    total = Partial()
    if not floating:
        return []
    if name in _SUMS:
        if name == "to_dtype" and not _inexact(call.args[1]):
            return []  # truncation is not linear
        numbers = any(isinstance(a, (int, float, complex)) for a in call.args[:2])
        if not (numbers and name in ("add", "sub", "rsub")):
            return [Choice((total,) * count, (total,))]
    if name in _SCALED and not any(isinstance(a, str) for a in call.args):
        first = [Choice((total, *(R,) * (count - 1)), (total,))]
        if isinstance(call.args[0], (int, float, complex)):  # 2 / x
            return first if name == "mul" else []
        if name == "mul" and count == 2:
            first.append(Choice((R, total), (total,)))
        return first
    return []


def _dims(value: Any, ndim: int) -> list[int]:
    if value is None or (isinstance(value, (tuple, list)) and not value):
        return list(range(ndim))
    given = value if isinstance(value, (tuple, list)) else [value]
    return [int(d) % max(ndim, 1) for d in given]


_PARTIAL = {"sum": "sum", "mean": "avg", "amax": "max", "amin": "min"}


def reduction(call: Call) -> Plan | None:
    """Over the parts first; the ranks' results are combined later."""
    (tensor,) = call.tensors
    shape = tuple(tensor.shape)
    dims = _dims(call.args[1] if len(call.args) > 1 else None, len(shape))
    keep = bool(call.args[2]) if len(call.args) > 2 else False
    out = tuple(1 if d in dims else n for d, n in enumerate(shape) if keep or d not in dims)
    choices = []
    for dim, length in enumerate(shape):
        if dim not in dims:
            place = dim if keep else dim - sum(d < dim for d in dims)
            choices.append(Choice((Shard(dim),), (Shard(place),)))
        elif length and length % call.mesh.size() == 0:  # parts of one size, none empty
            choices.append(Choice((Shard(dim),), (Partial(_PARTIAL[call.name]),)))
        elif call.name == "sum":
            choices.append(Choice((Shard(dim),), (Partial(),)))
    if call.name in ("sum", "mean") and tensor.dtype.is_floating_point:
        choices += [Choice((Partial(op),), (Partial(op),)) for op in ("sum", "avg")]
    return Plan(choices, [out])


def like(call: Call) -> Plan | None:
    """``zeros_like`` and others whose result lies as the first tensor does."""
    tensor, *others = call.tensors
    rest = (R,) * len(others)
    choices = [Choice((Shard(d), *rest), (Shard(d),)) for d in range(tensor.ndim)]
    return Plan(choices, [tuple(tensor.shape)])


RULES = {
    **dict.fromkeys("zeros_like ones_like empty_like full_like type_as".split(), like),
    **dict.fromkeys("fill zero clone detach contiguous copy".split(), pointwise),
    **dict.fromkeys(_PARTIAL, reduction),
}
