"""Attention and its gradients.

Of float16 and bfloat16 they are the kernels of :mod:`.flash`. Otherwise there are products by
cuBLAS, and one kernel between them for mask, scale and softmax, in the memory of the scores. Heads
that share keys are rows of one product, so that keys are not repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any, NamedTuple

from coredispatch_cuda_cupy.cuda.flash import Flash
from coredispatch_cuda_cupy.cuda.layout import MOST_BLOCKS, blocks, dense, row_threads
from coredispatch_cuda_cupy.cuda.loading import Family, is_float

__all__ = ["Attention", "fits", "given", "kernels"]


class Attention(NamedTuple):
    """One call of attention.

    Attributes:
        query: ``(heads, groups * queries, depth)``, the heads those of the keys.
        key: ``(heads, keys, depth)``.
        value: ``(heads, keys, columns)``.
        queries: rows of one head of the query.
        mask: what kernels are told of a mask: chosen, bias, step; zeros for none.
        causal: 1 if a query uses the keys up to its own place.
        scale: what scores are multiplied by.
    """

    query: Any
    key: Any
    value: Any
    queries: int
    mask: tuple[Any, Any, int]
    causal: int
    scale: float


def given(
    cupy: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Attention | None:
    """The call as kernels take it; None for what they do not take, or what does not fit."""
    if not fits(query, key, value, grouped) or (causal and mask is not None):
        return None
    dtype, lead, shared = query.dtype, query.shape[:-2], key.shape[:-2]
    queries, depth = query.shape[-2:]
    told = _mask(cupy, mask, lead, queries, key.shape[-2], dtype)
    if told is None:
        return None
    if causal:  # what comes after all queries is not read
        key, value = key[..., :queries, :], value[..., :queries, :]
    heads = prod(shared)
    factor = 1 / sqrt(depth) if scale is None else float(scale)
    return Attention(
        dense(cupy, query).reshape(heads, -1, depth),
        dense(cupy, key).reshape(heads, -1, depth),
        dense(cupy, value).reshape(heads, -1, value.shape[-1]),
        queries,
        told,
        int(causal),
        factor,
    )


def fits(query: Any, key: Any, value: Any, grouped: bool) -> bool:
    """Whether the arrays have one floating dtype, elements, and shapes that go together."""
    if min(query.ndim, key.ndim, value.ndim) < 2:
        return False
    dtype, lead, shared = query.dtype, query.shape[:-2], key.shape[:-2]
    if not is_float(dtype) or key.dtype != dtype or value.dtype != dtype:
        return False
    if key.shape[-1] != query.shape[-1] or value.shape[:-1] != key.shape[:-1]:
        return False
    if lead != shared and not _shares(lead, shared, grouped):
        return False
    return bool(query.size and key.size and value.size)


def _shares(lead: tuple[int, ...], shared: tuple[int, ...], grouped: bool) -> bool:
    """Whether heads of the query come in groups for each head of the key."""
    if not grouped or len(lead) != len(shared) or not lead or lead[:-1] != shared[:-1]:
        return False
    return bool(shared[-1]) and lead[-1] % shared[-1] == 0


def _mask(
    cupy: Any, mask: Any, lead: tuple[int, ...], queries: int, keys: int, dtype: Any
) -> tuple[Any, Any, int] | None:
    """Chosen places, bias, and how far the masks of two heads are apart; None to reject."""
    if mask is None:
        return 0, 0, 0
    if mask.dtype != dtype and mask.dtype.kind != "b":
        return None
    one = prod(mask.shape[:-2]) == 1
    try:
        whole = cupy.broadcast_to(
            mask.reshape(mask.shape[-2:]) if one else mask,
            (queries, keys) if one else (*lead, queries, keys),
        )
    except ValueError:
        return None
    whole, step = dense(cupy, whole), 0 if one else queries * keys
    return (whole, 0, step) if mask.dtype.kind == "b" else (0, whole, step)


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch, flash = Family(cupy, "attention"), Flash(cupy)

    def weights_of(call: Attention, wants_hidden: bool) -> tuple[Any, Any]:
        """The weights of keys, and which queries have none."""
        scores = cupy.matmul(call.query, call.key.swapaxes(-1, -2))
        keys = scores.shape[-1]
        rows = scores.size // keys
        masked = any(not isinstance(part, int) for part in call.mask)
        hidden: Any = cupy.empty(rows, bool) if masked and wants_hidden else 0
        options = (call.queries, keys, call.causal, *call.mask, call.scale)
        grid, block = min(rows, MOST_BLOCKS), row_threads(keys)
        launch("weights", scores.dtype, grid, block, (scores, hidden, rows, *options))
        return scores, hidden

    def attention(query: Any, *rest: Any) -> Any:
        call = given(cupy, query, *rest)
        if call is None:
            return NotImplemented
        if flash.takes(call):
            return flash.forward(call)[0].reshape(*query.shape[:-1], -1)
        weights, _ = weights_of(call, False)
        return cupy.matmul(weights, call.value).reshape(*query.shape[:-1], -1)

    def shown(rows: Any, hidden: Any) -> Any:
        """The rows with 0 for queries without a key: no product is to see what is in them."""
        if isinstance(hidden, int):
            return rows
        out, n = cupy.empty(rows.shape, rows.dtype), rows.shape[-1]
        given = (rows, hidden, out, rows.size // n, n)
        launch("without_hidden", rows.dtype, blocks(rows.size), 256, given)
        return out

    def attention_backward(grad: Any, query: Any, key: Any, value: Any, *rest: Any) -> Any:
        call = given(cupy, query, key, value, *rest)
        if call is None or grad.dtype != query.dtype:
            return NotImplemented
        if grad.shape != (*query.shape[:-1], value.shape[-1]):
            return NotImplemented
        grad = dense(cupy, grad).reshape(*call.query.shape[:-1], value.shape[-1])
        if flash.takes(call):
            out, logs, hidden = flash.forward(call, True)
            call = call._replace(query=shown(call.query, hidden))
            found = flash.backward(call, shown(grad, hidden), out, logs)
            of_key, of_value = _padded(cupy, found[1], key), _padded(cupy, found[2], value)
            return found[0].reshape(query.shape), of_key, of_value
        weights, hidden = weights_of(call, True)
        grad, queries = shown(grad, hidden), shown(call.query, hidden)
        of_value = cupy.matmul(weights.swapaxes(-1, -2), grad)
        scores = cupy.matmul(grad, call.value.swapaxes(-1, -2))
        keys = scores.shape[-1]
        rows = scores.size // keys
        arguments = (weights, scores, rows, call.queries, keys, call.causal, call.scale)
        grid, block = min(rows, MOST_BLOCKS), row_threads(keys)
        launch("scores_backward", scores.dtype, grid, block, arguments)
        of_query = cupy.matmul(scores, call.key).reshape(query.shape)
        of_key = cupy.matmul(scores.swapaxes(-1, -2), queries)
        return of_query, _padded(cupy, of_key, key), _padded(cupy, of_value, value)

    return {"attention": attention, "attention_backward": attention_backward}


def _padded(cupy: Any, grad: Any, like: Any) -> Any:
    """The gradient of all keys, 0 for those that no query reached."""
    missing = like.shape[-2] - grad.shape[-2]
    if missing:
        zeros = cupy.zeros((grad.shape[0], missing, grad.shape[-1]), grad.dtype)
        grad = cupy.concatenate([grad, zeros], axis=-2)
    return grad.reshape(like.shape)
