"""Operators with fused kernels and a batch dimension of their own, which takes the samples in.

Their decompositions would do as well: this is about speed. Where a rule does not fit the arguments,
it leaves the call to the decomposition.
"""

from __future__ import annotations

from math import prod
from typing import Any

from coredispatch.frontend.transforms.batching.batch import Batch, op
from coredispatch.plugin import Value, dispatch, dtype_of

__all__ = ["FUSED"]

#: what a rule returns for arguments that it does not take
DECOMPOSE = NotImplemented


def _folded(batch: Batch, x: Any) -> Any:
    """``(B, N, ...)`` as ``(B * N, ...)``."""
    value = batch.front(x)
    shape = value.raw.shape
    return op("reshape")(value, (shape[0] * shape[1], *shape[2:]))


def _unfolded(batch: Batch, out: Any) -> Any:
    shape = out.raw.shape
    return op("reshape")(out, (batch.size, shape[0] // (batch.size or 1), *shape[1:]))


def _interleaved(batch: Batch, x: Any) -> Any:
    """``(B, N, C, ...)`` as ``(N, B * C, ...)``: the channels of all samples beside each other."""
    value = op("transpose")(batch.front(x), 0, 1)
    shape = value.raw.shape
    return op("reshape")(value, (shape[0], shape[1] * shape[2], *shape[3:]))


def _separated(batch: Batch, out: Any) -> Any:
    shape = out.raw.shape
    parts = (shape[0], batch.size, shape[1] // (batch.size or 1), *shape[2:])
    return op("transpose")(op("reshape")(out, parts), 0, 1)


def _usable(batch: Batch, *tensors: Any) -> bool:
    """Not empty, in one dtype, and with at least a batch and a channel dimension."""
    given = [t for t in tensors if t is not None]
    return bool(batch.size) and all(
        len(t.raw.shape) >= 3 and 0 not in t.raw.shape and dtype_of(t) is dtype_of(given[0])
        for t in given
    )


# ---- convolutions -------------------------------------------------------------------------------


def convolution(batch: Batch, input: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """One weight for all: more inputs. One for each: groups, a sample's channels each."""
    if not _usable(batch, input, weight):
        return DECOMPOSE
    *rest, groups = options
    if batch.of(weight) is not None:
        out = dispatch(
            batch.op,
            (_interleaved(batch, input), _folded(batch, weight), None, *rest, groups * batch.size),
        )
        out = _separated(batch, out)
    elif batch.of(input) is None:  # only the bias differs
        out = dispatch(batch.op, (batch.open(input), batch.open(weight), None, *options))
    else:
        folded = _folded(batch, input)
        out = _unfolded(batch, dispatch(batch.op, (folded, batch.open(weight), None, *options)))
    if bias is None:
        return out if len(out.raw.shape) > len(input.raw.shape) else batch.front(out)
    spatial = (1,) * (len(input.raw.shape) - 2)
    shape = tuple(bias.raw.shape)
    if batch.of(bias) is None:
        return op("add")(out, op("reshape")(batch.open(bias), (*shape, *spatial)))
    return op("add")(out, op("reshape")(batch.front(bias), (batch.size, 1, *shape, *spatial)))


def conv_input_grad(batch: Batch, grad: Any, weight: Any, input_shape: Any, *options: Any) -> Any:
    """As :func:`convolution`."""
    if not _usable(batch, grad, weight):
        return DECOMPOSE
    n, channels, *spatial = input_shape
    *rest, groups = options
    size = batch.size or 1
    if batch.of(weight) is None:
        shape = (n * size, channels, *spatial)
        folded = _folded(batch, grad)
        out = dispatch(batch.op, (folded, batch.open(weight), shape, *options))
        return _unfolded(batch, out)
    out = dispatch(
        batch.op,
        (
            _interleaved(batch, grad),
            _folded(batch, weight),
            (n, channels * size, *spatial),
            *rest,
            groups * size,
        ),
    )
    return _separated(batch, out)


def conv_weight_grad(batch: Batch, grad: Any, input: Any, weight_shape: Any, *options: Any) -> Any:
    """The weights of the samples are groups."""
    if not _usable(batch, grad, input):
        return DECOMPOSE
    *rest, groups = options
    size = batch.size or 1
    shape = (weight_shape[0] * size, *weight_shape[1:])
    out = dispatch(
        batch.op,
        (_interleaved(batch, grad), _interleaved(batch, input), shape, *rest, groups * size),
    )
    return op("reshape")(out, (size, *weight_shape))


# ---- pools --------------------------------------------------------------------------------------


def pool(batch: Batch, input: Any, *options: Any) -> Any:
    """A pool of more inputs."""
    if not _usable(batch, input):
        return DECOMPOSE
    out = dispatch(batch.op, (_folded(batch, input), *options))
    if isinstance(out, Value):
        return _unfolded(batch, out)
    return [_unfolded(batch, item) for item in out]


def pool_backward(batch: Batch, grad: Any, input: Any, *options: Any) -> Any:
    """The gradient of a pool; ``input`` is a tensor or its shape."""
    if not _usable(batch, grad, input if isinstance(input, Value) else None):
        return DECOMPOSE
    if isinstance(input, Value):
        inner = _folded(batch, input)
    else:
        inner = (input[0] * (batch.size or 1), *input[1:])
    return _unfolded(batch, dispatch(batch.op, (_folded(batch, grad), inner, *options)))


# ---- recurrences --------------------------------------------------------------------------------


def _beside(batch: Batch, x: Any) -> Any:
    """``(B, rows, ...)`` as ``(rows * B, ...)``: the samples of each row one after the other."""
    value = op("transpose")(batch.front(x), 0, 1)
    shape = value.raw.shape
    return op("reshape")(value, (shape[0] * shape[1], *shape[2:]))


def _apart(batch: Batch, out: Any) -> Any:
    shape = out.raw.shape
    value = op("reshape")(out, (shape[0] // (batch.size or 1), batch.size, *shape[1:]))
    return op("transpose")(value, 0, 1)


def recurrence(shared: tuple[int, ...]) -> Any:
    """The rule of a sequence operator: the samples are more sequences of each step.

    ``shared`` are the positions of weights, which must be the same for all samples.
    """

    def rule(batch: Batch, *args: Any) -> Any:
        *tensors, sizes, reverse = args
        if not batch.size or any(batch.of(tensors[i]) is not None for i in shared):
            return DECOMPOSE
        opened = [
            x if not isinstance(x, Value) else batch.open(x) if i in shared else _beside(batch, x)
            for i, x in enumerate(tensors)
        ]
        out = dispatch(batch.op, (*opened, tuple([n * batch.size for n in sizes]), reverse))
        if isinstance(out, Value):
            return _apart(batch, out)
        return [_apart(batch, item) for item in out]

    return rule


# ---- norms and losses ---------------------------------------------------------------------------


def layer_norm(batch: Batch, input: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The normalized dimensions are the last ones."""
    if any(x is not None and batch.of(x) is not None for x in (weight, bias)):
        return DECOMPOSE
    rest = batch.opened((shape, weight, bias, eps))
    return dispatch(batch.op, (batch.front(input), *rest))


def _classes(batch: Batch, input: Any, target: Any, weight: Any) -> bool:
    """Whether the loss is one of class numbers, without weights, of something."""
    rank = len(input.raw.shape)
    return (
        weight is None
        and rank >= 1
        and len(target.raw.shape) == max(rank - 2, 0) + (rank > 1)
        and dtype_of(target).kind in "iu"
        and 0 not in input.raw.shape
        and bool(batch.size)
    )


def _merged(batch: Batch, x: Any, single: bool) -> Any:
    """Samples and batch as one dimension; a sample without a batch is one element of it."""
    return batch.front(x) if single else _folded(batch, x)


def _count(batch: Batch, target: Any, ignore_index: int, like: Any) -> Any:
    """How many targets of each sample are not ignored."""
    value = batch.front(target)
    kept = op("to_dtype")(op("ne")(value, ignore_index), dtype_of(like))
    return op("sum")(op("reshape")(kept, (batch.size, prod(target.raw.shape))), (1,))


def cross_entropy(
    batch: Batch,
    input: Any,
    target: Any,
    weight: Any,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Any:
    """The losses of all samples, reduced by sample."""
    if not _classes(batch, input, target, weight):
        return DECOMPOSE
    single = len(input.raw.shape) == 1
    values = [_merged(batch, x, single) for x in (input, target)]
    losses = dispatch(batch.op, (*values, None, ignore_index, "none", smoothing))
    losses = op("reshape")(losses, (batch.size, *target.raw.shape))
    if reduction == "none":
        return losses
    total = op("sum")(op("reshape")(losses, (batch.size, prod(target.raw.shape))), (1,))
    if reduction == "sum":
        return total
    return op("div")(total, _count(batch, target, ignore_index, total))


def cross_entropy_backward(
    batch: Batch,
    grad: Any,
    input: Any,
    target: Any,
    weight: Any,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Any:
    """The gradient of each loss is that of its sample."""
    if not _classes(batch, input, target, weight):
        return DECOMPOSE
    single = len(input.raw.shape) == 1
    each = batch.front(grad)
    if reduction != "none":
        if reduction == "mean":
            each = op("div")(each, _count(batch, target, ignore_index, grad))
        ones = (1,) * len(target.raw.shape)
        each = op("reshape")(each, (batch.size, *ones))
        each = op("expand")(each, (batch.size, *target.raw.shape))
    if not single:
        shape = each.raw.shape
        each = op("reshape")(each, (shape[0] * shape[1], *shape[2:]))
    values = [_merged(batch, x, single) for x in (input, target)]
    out = dispatch(batch.op, (each, *values, None, ignore_index, "none", smoothing))
    return op("reshape")(out, (batch.size, *input.raw.shape))


#: operator -> rule(batch, *args), which may return ``NotImplemented``
# ---- attention ----------------------------------------------------------------------------------


def attention(number: int) -> Any:
    """The rule of attention and its gradients, of ``number`` tensors and a mask: more heads."""

    def rule(batch: Batch, *args: Any) -> Any:
        tensors, (mask, *options) = args[:number], args[number:]
        ranks = {len(x.raw.shape) for x in tensors}
        if not batch.size or len(ranks) > 1:
            return DECOMPOSE
        if mask is not None:
            mask = batch.aligned(mask, ranks.pop())
        return dispatch(batch.op, (*[batch.front(x) for x in tensors], mask, *options))

    return rule


FUSED: dict[str, Any] = {
    "attention": attention(3),
    "attention_backward": attention(4),
    "convolution": convolution,
    "conv_input_grad": conv_input_grad,
    "conv_weight_grad": conv_weight_grad,
    "max_pool": pool,
    "max_pool_with_indices": pool,
    "avg_pool": pool,
    "adaptive_avg_pool": pool,
    "adaptive_max_pool": pool,
    "max_pool_backward": pool_backward,
    "avg_pool_backward": pool_backward,
    "adaptive_avg_pool_backward": pool_backward,
    "lstm_sequence": recurrence((3, 4)),
    "lstm_sequence_backward": recurrence((6, 7)),
    "gru_sequence": recurrence((2, 3)),
    "gru_sequence_backward": recurrence((4,)),
    "rnn_sequence": recurrence((2,)),
    "rnn_sequence_backward": recurrence((2,)),
    "layer_norm": layer_norm,
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
}
