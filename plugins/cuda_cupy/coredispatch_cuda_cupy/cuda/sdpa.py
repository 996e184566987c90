"""Attention of float16 and bfloat16 and its gradients by cuDNN.

It reads arrays whose features lie next to each other where they are. A mask is what is added to the
scores, finite numbers only: a hidden key gets the least number of the dtype. Queries from which
all keys are hidden give 0 afterwards, and their gradients come in as 0. Where cuDNN does not
support a call, it is the kernels of :mod:`.attention`. Gradients compute the result once more, as
their operator is not given it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from coredispatch_cuda_cupy import cudnn
from coredispatch_cuda_cupy.cuda.attention import fits
from coredispatch_cuda_cupy.cuda.flash import DEEPEST, HALVES
from coredispatch_cuda_cupy.cuda.layout import dense
from coredispatch_cuda_cupy.cudnn import Builder, Graphs, Spec, spec_of

__all__ = ["kernels"]

#: features of a head are a multiple of so many
_UNIT = 8
#: the least numbers of the dtypes
_LEAST = {"float16": np.float32(-65504), "bfloat16": np.float32(-3.3895313892515355e38)}


class _Options(NamedTuple):
    """What a call says beside its arrays."""

    scale: float
    causal: bool
    deterministic: bool = False

    def named(self, cudnn: Any) -> dict[str, Any]:
        """As the frontend's calls name them."""
        found: dict[str, Any] = {"attn_scale": self.scale}
        if self.causal:  # a query sees the keys up to its own place, counted from the first
            found["diagonal_alignment"] = cudnn.diagonal_alignment.TOP_LEFT
            found["diagonal_band_right_bound"] = 0
        return found


class _Arrays(NamedTuple):
    """Query, key and value, what is added to scores, and 1 for queries with a key, else 0."""

    read: tuple[Any, ...]
    bias: Any = None
    visible: Any = None

    @property
    def biases(self) -> tuple[Any, ...]:
        """The bias, if there is one."""
        return () if self.bias is None else (self.bias,)

    def shown(self, rows: Any) -> Any:
        """Rows of queries, those without a key as 0 whatever is in them."""
        if self.visible is None:
            return rows
        return (rows.view(np.uint16) * self.visible).view(rows.dtype)


class _Forward(NamedTuple):
    """Describes the result, and the logarithms of the rows' sums if ``stats`` says where."""

    inputs: tuple[Spec, ...]
    out: Spec
    stats: Spec | None
    options: _Options

    def __call__(self, builder: Builder) -> None:
        query, key, value, *bias = (builder.input(x) for x in self.inputs)
        out, stats = builder.graph.sdpa(
            q=query,
            k=key,
            v=value,
            generate_stats=self.stats is not None,
            **({"bias": bias[0]} if bias else {}),
            **self.options.named(builder.cudnn),
        )
        builder.output(out, self.out)
        if self.stats is not None:
            builder.output(stats, self.stats)


class _Backward(NamedTuple):
    """Describes the gradients of query, key and value, which are laid out as these are."""

    inputs: tuple[Spec, ...]
    results: tuple[Spec, ...]
    options: _Options

    def __call__(self, builder: Builder) -> None:
        query, key, value, out, grad, stats, *bias = (builder.input(x) for x in self.inputs)
        found = builder.graph.sdpa_backward(
            q=query,
            k=key,
            v=value,
            o=out,
            dO=grad,
            stats=stats,
            use_deterministic_algorithm=self.options.deterministic,
            **({"bias": bias[0]} if bias else {}),
            **self.options.named(builder.cudnn),
        )
        for tensor, spec in zip(found, self.results, strict=True):
            builder.output(tensor, spec)


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator; none without cuDNN."""
    found = cudnn.frontend(cupy)
    if found is None:
        return {}
    graphs = Graphs(cupy, found)

    def forward(call: _Arrays, options: _Options, wants_stats: bool) -> Any:
        """The result and the logarithms, which are 0 where they are not asked for."""
        query, value = call.read[0], call.read[2]
        out = cupy.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
        stats: Any = cupy.empty((*query.shape[:-1], 1), "float32") if wants_stats else 0
        results = (out, stats) if wants_stats else (out,)
        of_stats = spec_of(stats) if wants_stats else None
        read = (*call.read, *call.biases)
        describe = _Forward(tuple(map(spec_of, read)), spec_of(out), of_stats, options)
        return (out, stats) if graphs.run(describe, (*read, *results)) else None

    def attention(query: Any, key: Any, value: Any, *rest: Any) -> Any:
        call = _arrays(cupy, query, key, value, *rest)
        made = None if call is None else forward(call, _options(query, *rest), False)
        if call is None or made is None:
            return NotImplemented
        return call.shown(made[0]).reshape(*query.shape[:-1], -1)

    def attention_backward(grad: Any, query: Any, key: Any, value: Any, *rest: Any) -> Any:
        call = _arrays(cupy, query, key, value, *rest)
        if call is None or grad.dtype != query.dtype:
            return NotImplemented
        if grad.shape != (*query.shape[:-1], value.shape[-1]):
            return NotImplemented
        options = _options(query, *rest)
        made = forward(call, options, True)
        if made is None:
            return NotImplemented
        grad = call.shown(dense(cupy, grad).reshape(made[0].shape))
        inputs = (*call.read, made[0], grad, made[1], *call.biases)
        results = tuple(cupy.empty(x.shape, x.dtype) for x in call.read)
        options = options._replace(deterministic=bool(cudnn.settings().deterministic))
        read, written = (tuple(spec_of(x) for x in group) for group in (inputs, results))
        if not graphs.run(_Backward(read, written, options), (*inputs, *results)):
            return NotImplemented
        of_query, of_key, of_value = results
        shapes = (query.shape, key.shape, value.shape)
        return tuple(
            x.reshape(s) for x, s in zip((of_query, of_key, of_value), shapes, strict=True)
        )

    return {"attention": attention, "attention_backward": attention_backward}


def _options(query: Any, mask: Any, causal: bool, scale: float | None, grouped: bool) -> _Options:
    factor = 1 / sqrt(query.shape[-1]) if scale is None else float(scale)
    return _Options(factor, bool(causal))


def _arrays(
    cupy: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> _Arrays | None:
    """All as ``(batch, heads, rows, features)``; None where cuDNN is not asked."""
    if query.ndim not in (3, 4) or query.dtype.name not in HALVES:
        return None
    if mask is not None and (causal or mask.ndim > query.ndim):
        return None
    if not import_module("coredispatch.backends.cuda").cudnn_sdp_enabled():
        return None
    if not (query.ndim == key.ndim == value.ndim) or not fits(query, key, value, grouped):
        return None
    depths = query.shape[-1], value.shape[-1]
    if max(depths) > DEEPEST or any(depth % _UNIT for depth in depths):
        return None
    if causal and key.shape[-2] > query.shape[-2]:
        return None  # keys behind all queries have no gradient, which cuDNN may leave unwritten
    arrays = [x if x.ndim == 4 else x.reshape(1, *x.shape) for x in (query, key, value)]
    read = tuple(x if _is_usable(x) else dense(cupy, x) for x in arrays)
    return _Arrays(read) if mask is None else _masked(cupy, read, mask)


def _masked(cupy: Any, read: tuple[Any, ...], mask: Any) -> _Arrays | None:
    """The call with a mask that is bool or of the query's dtype; None for another."""
    query, keys = read[0], read[1].shape[2]
    mask = mask.reshape(*[1] * (4 - mask.ndim), *mask.shape)
    scores = (*query.shape[:3], keys)
    if any(n not in (1, wanted) for n, wanted in zip(mask.shape, scores, strict=True)):
        return None
    low = _LEAST[query.dtype.name]
    if mask.dtype.kind == "b":
        visible, bias = mask.any(-1, keepdims=True), (~mask).astype(np.float32) * low
    elif mask.dtype == query.dtype:
        wide = mask.astype(np.float32)
        visible, bias = (wide != -np.inf).any(-1, keepdims=True), cupy.maximum(wide, low)
    else:
        return None
    rows = (*mask.shape[:2], *scores[2:])
    bias = dense(cupy, cupy.broadcast_to(bias.astype(query.dtype), rows))
    return _Arrays(read, bias, visible.astype(np.uint16))


def _is_usable(x: Any) -> bool:
    """Whether features lie next to each other, and no elements share memory."""
    return bool(x.strides[-1] == x.itemsize and all(s > 0 for s in x.strides))
