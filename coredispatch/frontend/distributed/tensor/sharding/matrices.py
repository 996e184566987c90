"""Products of matrices."""

from __future__ import annotations

from coredispatch.frontend.distributed.tensor.placements import Partial, Shard
from coredispatch.frontend.distributed.tensor.sharding.choices import Call, Choice, Plan, R

__all__ = ["RULES"]

_TOTAL = Partial()


def matmul(call: Call) -> Plan | None:
    """Rows, columns, the summed dimension, or a batch dimension that both have."""
    if len(call.tensors) != 2:
        return None
    a, b = (tuple(t.shape) for t in call.tensors)
    if len(a) < 2 or len(b) < 2 or (len(b) > 2 and len(a) != len(b)):
        return None
    n = len(a)
    out = (
        *(x if x != 1 else y for x, y in zip(a[:-2], b[:-2] or a[:-2], strict=True)),
        a[-2],
        b[-1],
    )
    choices = [
        Choice((Shard(n - 2), R), (Shard(n - 2),)),
        Choice((R, Shard(len(b) - 1)), (Shard(n - 1),)),
        Choice((Shard(n - 1), Shard(len(b) - 2)), (_TOTAL,)),
        Choice((_TOTAL, R), (_TOTAL,)),
        Choice((R, _TOTAL), (_TOTAL,)),
    ]
    for i in range(n - 2):
        if len(b) == 2:
            choices.append(Choice((Shard(i), R), (Shard(i),)))
        elif a[i] == b[i]:
            choices.append(Choice((Shard(i), Shard(i)), (Shard(i),)))
    return Plan(choices, [out])


def addmm(call: Call) -> Plan | None:
    """As :func:`matmul`, with a tensor that broadcasts to the product."""
    bias, a, b = (tuple(t.shape) for t in call.tensors)
    rows = Shard(len(bias) - 2) if len(bias) == 2 and bias[0] != 1 else R
    columns = Shard(len(bias) - 1) if bias and bias[-1] != 1 else R
    return Plan(
        [
            Choice((rows, Shard(0), R), (Shard(0),)),
            Choice((columns, R, Shard(1)), (Shard(1),)),
            Choice((_TOTAL, Shard(1), Shard(0)), (_TOTAL,)),
        ],
        [(a[0], b[1])],
    )


def linear(call: Call) -> Plan | None:
    """The batch, output features, or input features, whose bias the first rank adds."""
    x, weight = tuple(call.tensors[0].shape), tuple(call.tensors[1].shape)
    bias = len(call.tensors) > 2
    if len(weight) != 2 or not x:
        return None
    n = len(x)
    choices = [Choice((Shard(i), R, *([R] * bias)), (Shard(i),)) for i in range(n - 1)]
    choices += [
        Choice((R, Shard(0), *([Shard(0)] * bias)), (Shard(n - 1),)),
        Choice((Shard(n - 1), Shard(1), *([_TOTAL] * bias)), (_TOTAL,)),
        Choice((_TOTAL, R, *([_TOTAL] * bias)), (_TOTAL,)),
    ]
    return Plan(choices, [(*x[:-1], weight[0])])


def linear_weight_grad(call: Call) -> Plan | None:
    """``grad.T @ input`` over all batch dimensions."""
    grad, x = (tuple(t.shape) for t in call.tensors[:2])
    n = len(grad)
    choices = [Choice((Shard(i), Shard(i)), (_TOTAL,)) for i in range(n - 1)]
    choices += [
        Choice((Shard(n - 1), R), (Shard(0),)),
        Choice((R, Shard(len(x) - 1)), (Shard(1),)),
        Choice((_TOTAL, R), (_TOTAL,)),
    ]
    return Plan(choices, [(grad[-1], x[-1])])


RULES = {
    **dict.fromkeys(("matmul", "mm", "bmm"), matmul),
    "addmm": addmm,
    "linear": linear,
    "linear_weight_grad": linear_weight_grad,
}
