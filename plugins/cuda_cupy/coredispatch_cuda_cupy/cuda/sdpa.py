"""Attention of float16 and bfloat16 and its gradients by cuDNN, without masks.

It reads arrays whose features lie next to each other where they are. With a mask, and where cuDNN
does not support a call, it is the kernels of :mod:`.attention`. Gradients compute the result once
more, as their operator is not given it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from math import sqrt
from typing import Any, NamedTuple

from coredispatch_cuda_cupy import cudnn
from coredispatch_cuda_cupy.cuda.attention import fits
from coredispatch_cuda_cupy.cuda.flash import DEEPEST, HALVES
from coredispatch_cuda_cupy.cuda.layout import dense
from coredispatch_cuda_cupy.cudnn import Builder, Graphs, Spec, spec_of

__all__ = ["kernels"]

#: features of a head are a multiple of so many
_UNIT = 8


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


class _Forward(NamedTuple):
    """Describes the result, and the logarithms of the rows' sums if ``stats`` says where."""

    query: Spec
    key: Spec
    value: Spec
    out: Spec
    stats: Spec | None
    options: _Options

    def __call__(self, builder: Builder) -> None:
        query, key, value = (builder.input(x) for x in (self.query, self.key, self.value))
        out, stats = builder.graph.sdpa(
            q=query,
            k=key,
            v=value,
            generate_stats=self.stats is not None,
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
        query, key, value, out, grad, stats = (builder.input(x) for x in self.inputs)
        found = builder.graph.sdpa_backward(
            q=query,
            k=key,
            v=value,
            o=out,
            dO=grad,
            stats=stats,
            use_deterministic_algorithm=self.options.deterministic,
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

    def forward(arrays: list[Any], options: _Options, wants_stats: bool) -> Any:
        """The result and the logarithms, which are 0 where they are not asked for."""
        query, value = arrays[0], arrays[2]
        out = cupy.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
        stats: Any = cupy.empty((*query.shape[:-1], 1), "float32") if wants_stats else 0
        results = (out, stats) if wants_stats else (out,)
        of_stats = spec_of(stats) if wants_stats else None
        of_query, of_key, of_value = (spec_of(x) for x in arrays)
        describe = _Forward(of_query, of_key, of_value, spec_of(out), of_stats, options)
        return (out, stats) if graphs.run(describe, (*arrays, *results)) else None

    def attention(query: Any, key: Any, value: Any, *rest: Any) -> Any:
        arrays = _arrays(cupy, query, key, value, *rest)
        if arrays is None:
            return NotImplemented
        made = forward(arrays, _options(query, *rest), False)
        return NotImplemented if made is None else made[0].reshape(*query.shape[:-1], -1)

    def attention_backward(grad: Any, query: Any, key: Any, value: Any, *rest: Any) -> Any:
        arrays = _arrays(cupy, query, key, value, *rest)
        if arrays is None or grad.dtype != query.dtype:
            return NotImplemented
        if grad.shape != (*query.shape[:-1], value.shape[-1]):
            return NotImplemented
        options = _options(query, *rest)
        made = forward(arrays, options, True)
        if made is None:
            return NotImplemented
        grad = dense(cupy, grad).reshape(made[0].shape)
        inputs = (*arrays, made[0], grad, made[1])
        results = tuple(cupy.empty(x.shape, x.dtype) for x in arrays)
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
) -> list[Any] | None:
    """Query, key and value as ``(batch, heads, rows, features)``; None where cuDNN is not asked."""
    if mask is not None or query.ndim not in (3, 4) or query.dtype.name not in HALVES:
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
    return [x if _is_usable(x) else dense(cupy, x) for x in arrays]


def _is_usable(x: Any) -> bool:
    """Whether features lie next to each other, and no elements share memory."""
    return bool(x.strides[-1] == x.itemsize and all(s > 0 for s in x.strides))
