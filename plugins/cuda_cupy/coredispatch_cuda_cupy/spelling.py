"""Softmax and normalizations as the pointwise operators and reductions that one kernel computes.

Eager calls the array-API base's formulas for them, one CuPy kernel after the other. In half
precision they are computed in float32, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.plugin import Operator, dtypes, operator, passes
from coredispatch.plugin import graph as graphs
from coredispatch_cuda_cupy.expressions import COMPUTED, TYPES

__all__ = ["complete", "spell"]


class _Writer:
    """Writes calls into a graph: ``b.add(x, 1)`` is a new node."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = operator(name)

        def write(*args: Any) -> Any:
            rest = [param.default for param in op.schema.params[len(args) :]]
            return graphs.call(self.graph, op, (*args, *rest))

        return write


def _softmax(b: Any, x: Any, dims: list[int]) -> Any:
    e = b.exp(b.sub(x, b.amax(x, dims, True)))
    return b.div(e, b.sum(e, dims, True))


def _log_softmax(b: Any, x: Any, dims: list[int]) -> Any:
    shifted = b.sub(x, b.amax(x, dims, True))
    return b.sub(shifted, b.log(b.sum(b.exp(shifted), dims, True)))


def _layer_norm(b: Any, x: Any, dims: list[int], weight: Any, bias: Any, eps: float) -> Any:
    centered = b.sub(x, b.mean(x, dims, True))
    variance = b.mean(b.mul(centered, centered), dims, True)
    y = b.mul(centered, b.rsqrt(b.add(variance, eps)))
    y = y if weight is None else b.mul(y, weight)
    return y if bias is None else b.add(y, bias)


def _rms_norm(b: Any, x: Any, dims: list[int], weight: Any, eps: float | None) -> Any:
    if eps is None:
        eps = 2.0**-52 if _type_of(x) == "double" else 2.0**-23
    y = b.mul(x, b.rsqrt(b.add(b.mean(b.mul(x, x), dims, True), eps)))
    return y if weight is None else b.mul(y, weight)


_SPELLED: dict[str, Callable[..., Any]] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}


def spell(graph: Any) -> Any:
    """A copy of a graph with values, in which those over the last dimensions are spelled out."""
    made = graph.copy()
    for node in list(made.nodes):
        if not isinstance(node.target, Operator) or node.target.name not in _SPELLED:
            continue
        given = complete(node)
        dims = _last(*given[:2])
        if dims is None or (node.target.name.endswith("softmax") and given[2] is not None):
            continue
        rest = [] if node.target.name.endswith("softmax") else given[2:]
        info = passes.inference.tensor_info(node)
        with made.inserting_before(node):
            b = _Writer(made)
            x, *rest = (_widened(b, a) for a in (given[0], *rest))
            new = _SPELLED[node.target.name](b, x, dims, *rest)
            if info is not None and _type_of(node) in COMPUTED:
                new = b.to_dtype(new, info.dtype)
        node.replace_all_uses_with(new)
        made.erase_node(node)
    made.lint()
    return made


def complete(node: Any) -> list[Any]:
    """The arguments in the order of the schema, defaults filled in."""
    params = node.target.schema.params
    args = list(node.args[: len(params)])
    return args + [node.kwargs.get(p.name, p.default) for p in params[len(args) :]]


def _widened(b: Any, x: Any) -> Any:
    return b.to_dtype(x, dtypes.float32) if _type_of(x) in COMPUTED else x


def _type_of(x: Any) -> str | None:
    """The type of a tensor's elements; None for what is no tensor, or is not known."""
    info = passes.inference.tensor_info(x) if hasattr(x, "graph") else None
    return None if info is None else TYPES.get(str(info.dtype).rpartition(".")[2])


def _last(x: Any, dims: Any) -> list[int] | None:
    """The last dimensions, given as one or by their sizes; None where a row kernel has no use."""
    info = passes.inference.tensor_info(x)
    if info is None or 0 in info.shape:
        return None
    if _type_of(x) not in ("float", "double", *COMPUTED):
        return None
    if isinstance(dims, int):
        return [-1] if info.shape and dims % len(info.shape) == len(info.shape) - 1 else None
    return list(range(-len(dims), 0)) if dims else None
