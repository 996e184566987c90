"""Reductions, scans and sorts: operators along dimensions, which move back by one."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.transforms.batching.batch import Batch, op
from coredispatch.plugin import Value, dispatch
from coredispatch.registry.model.sizes import normalize_dim, normalize_dims

__all__ = ["RULES"]


def _shifted(dim: Any, rank: int) -> Any:
    """``dim`` (an int, several, or none for all) among those behind the samples'."""
    if type(dim) is int:
        return normalize_dim(dim, rank) % max(rank, 1) + 1
    return tuple([d + 1 for d in normalize_dims(dim, rank)])


def along_dims(batch: Batch, self: Any, *args: Any) -> Any:
    """An operator whose parameter ``dim`` (or ``dims``) says along what."""
    position = next(i for i, p in enumerate(batch.op.schema.params) if p.name in ("dim", "dims"))
    return _along(batch, self, args, position - 1)


def _along(batch: Batch, self: Any, args: tuple[Any, ...], position: int) -> Any:
    value, rank = batch.front(self), len(self.raw.shape)
    dim = args[position]
    if rank == 0:
        return _of_numbers(batch, value, args, position)
    if dim is None or (type(dim) is tuple and not dim and batch.op.name in ("amax", "amin")):
        dim = tuple(range(rank))
    shifted = _shifted(dim, rank)
    return dispatch(batch.op, (value, *args[:position], shifted, *args[position + 1 :]))


def _of_numbers(batch: Batch, value: Any, args: tuple[Any, ...], position: int) -> Any:
    """Where samples have no dimensions, a dimension of length 1 stands for none."""
    dim = args[position]
    normalize_dims(() if dim is None else dim, 0)
    one = 1 if type(dim) is int or batch.op.schema.params[position + 1].kind == "int" else (1,)
    value = op("unsqueeze")(value, 1)
    out = dispatch(batch.op, (value, *args[:position], one, *args[position + 1 :]))
    flat = (batch.size,)
    if isinstance(out, Value):
        return op("reshape")(out, flat)
    return [op("reshape")(item, flat) for item in out]


def index_of_extreme(batch: Batch, self: Any, dim: int | None, keepdim: bool) -> Any:
    """``argmax`` and ``argmin``; without ``dim``, of all elements in order."""
    if dim is not None:
        return _along(batch, self, (dim, keepdim), 0)
    value, rank = batch.front(self), len(self.raw.shape)
    flat = op("reshape")(value, (batch.size, -1 if 0 not in self.raw.shape else 0))
    out = dispatch(batch.op, (flat, 1, False))
    return op("reshape")(out, (batch.size, *(1,) * rank)) if keepdim else out


RULES: dict[str, Any] = {
    **dict.fromkeys(
        [
            *("sum", "prod", "all", "any", "amax", "amin", "mean", "logsumexp"),
            *("cumsum", "cumprod", "sort", "argsort", "softmax", "log_softmax", "flip"),
            *("cummax", "cummin", "topk", "fft_c2c", "fft_c2r", "fft_r2c"),
        ],
        along_dims,
    ),
    "argmax": index_of_extreme,
    "argmin": index_of_extreme,
}


def _backward(batch: Batch, grad: Any, out: Any, *args: Any) -> Any:
    """``softmax_backward`` and its kind: two tensors of one shape, then the dimension."""
    rank = len(out.raw.shape)
    grad, out = batch.front(grad), batch.front(out)
    if rank == 0:
        grad, out = (op("unsqueeze")(x, 1) for x in (grad, out))
        made = dispatch(batch.op, (grad, out, 1, *args[1:]))
        return op("reshape")(made, (batch.size,))
    return dispatch(batch.op, (grad, out, _shifted(args[0], rank), *args[1:]))


RULES["softmax_backward"] = RULES["log_softmax_backward"] = _backward
