"""Operators of networks: embeddings, normalization, softmax, attention."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.distributed.tensor.placements import (
    Partial,
    Placement,
    Shard,
    chunk,
)
from coredispatch.frontend.distributed.tensor.sharding.choices import Call, Choice, Plan, R

__all__ = ["RULES"]

_TOTAL = Partial()


def embedding(call: Call) -> Plan | None:
    """Indices, embedding dimensions, or rows of the table: ranks give zeros for those of others."""
    if "max_norm" in call.params and call.args[call.params.index("max_norm")] is not None:
        return None  # rows that are asked for are written to
    indices, table = (tuple(t.shape) for t in call.tensors[:2])
    n = len(indices)
    choices = [Choice((Shard(i), R), (Shard(i),)) for i in range(n)]
    choices += [Choice((R, Shard(1)), (Shard(n),))]
    if call.mesh.ndim == 1:
        choices += [Choice((R, Shard(0)), (_TOTAL,))]
    mesh, rows = call.mesh, table[0]

    def run(func: Any, args: tuple[Any, ...], outputs: list[tuple[Placement, ...]]) -> Any:
        indices, table, *rest = args
        if not outputs[0][0].is_partial():
            return func(*args)
        if indices.numel():
            low, high = int(indices.min()), int(indices.max())
            if low < 0 or high >= rows:  # no rank has that row, and none would notice
                raise IndexError(
                    f"{call.name}: index {low if low < 0 else high} is out of range for {rows} "
                    f"embeddings\n  fix: use indices from 0 to {rows - 1}"
                )
        begin, end = chunk(rows, mesh.size(), mesh.get_local_rank())
        if begin == end:
            return table.new_zeros((*indices.shape, table.shape[1]))
        here = (indices >= begin) & (indices < end)
        rest[0] = None  # padding_idx, a row of the whole, which matters to gradients only
        found = func((indices - begin).clamp(0, end - begin - 1), table, *rest)
        return found.masked_fill(~here.unsqueeze(-1), 0)  # a product keeps infinite values

    return Plan(choices, [(*indices, table[1])], run)


def embedding_backward(call: Call) -> Plan | None:
    """The gradients of rows: of parts of the indices they add up."""
    grad = tuple(call.tensors[0].shape)
    n = len(grad) - 1
    by_frequency = bool(call.args[-1])
    choices = [] if by_frequency else [
        Choice((Shard(i), Shard(i)), (_TOTAL,)) for i in range(n)
    ]  # fmt: skip
    choices += [Choice((Shard(n), R), (Shard(1),)), Choice((_TOTAL, R), (_TOTAL,))]
    return Plan(choices, [(int(call.args[2]), grad[-1])])


def _kept(call: Call, normalized: Any) -> range:
    """The dimensions in front of those that are normalized."""
    return range(call.tensors[0].ndim - len(normalized))


def layer_norm(call: Call) -> Plan | None:
    """Dimensions that are not normalized; also of ``rms_norm``."""
    rest = [R] * (len(call.tensors) - 1)
    choices = [Choice((Shard(i), *rest), (Shard(i),)) for i in _kept(call, call.args[1])]
    return Plan(choices, [tuple(call.tensors[0].shape)])


def norm_backward(call: Call) -> Plan | None:
    """The gradients of the weights add up over parts of the batch."""
    x = call.tensors[1]
    normalized = call.args[2]
    rest = [R] * (len(call.tensors) - 2)
    weights = 2 if call.name == "layer_norm_backward" else 1
    choices = [
        Choice((Shard(i), Shard(i), *rest), (Shard(i), *[_TOTAL] * weights))
        for i in _kept(call, normalized)
    ]
    shape = tuple(normalized)
    return Plan(choices, [tuple(x.shape), *[shape] * weights])


def along(call: Call) -> Plan | None:
    """What computes along one dimension: ``softmax`` and what is like it, and their derivatives."""
    first = call.tensors[0]
    number = len(call.tensors)
    dim = call.args[number]
    if not isinstance(dim, int) or not first.ndim:
        return None
    choices = [
        Choice((Shard(i),) * number, (Shard(i),))
        for i in range(first.ndim)
        if i != dim % first.ndim
    ]
    return Plan(choices, [tuple(first.shape)])


def attention(call: Call) -> Plan | None:
    """The batch, or the heads; also of its gradients."""
    if "dropout_p" in call.params and call.args[call.params.index("dropout_p")]:
        return Plan([], random=True)
    if call.args[call.params.index("attn_mask")] is not None:
        return None
    number = call.params.index("attn_mask")
    shapes = [tuple(t.shape) for t in call.tensors[:number]]
    q, k, v = shapes[-3:]
    if len({len(shape) for shape in shapes}) > 1:
        return None
    dims = [i for i in range(len(q) - 2) if len({shape[i] for shape in shapes}) == 1]
    outputs = [(*q[:-1], v[-1])] if number == 3 else [q, k, v]
    choices = [Choice((Shard(i),) * number, (Shard(i),) * len(outputs)) for i in dims]
    return Plan(choices, outputs)


RULES = {
    **dict.fromkeys(("embedding_lookup", "embedding"), embedding),
    "embedding_backward": embedding_backward,
    **dict.fromkeys(("layer_norm", "rms_norm"), layer_norm),
    **dict.fromkeys(("layer_norm_backward", "rms_norm_backward"), norm_backward),
    **dict.fromkeys(("softmax", "log_softmax", "softmax_backward", "log_softmax_backward"), along),
    **dict.fromkeys(("scaled_dot_product_attention", "attention", "attention_backward"), attention),
}
