"""Names and classes of nodes: PyTorch's, where it has a node for the same operator.

A node is recorded as an ``OpNode``, whatever its operator. Who asks for a ``grad_fn`` gets it as an
instance of the class that has the operator's name (:func:`as_named`), so that recording pays
nothing for the names that ``type(fn).__name__`` shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from coredispatch.frontend.autograd.node import Node, OpNode
from coredispatch.frontend.autograd.result_names import camel_case
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.derivative import ARGUMENT, KIND, NUMBER, OUT, OUT_AT
from coredispatch.registry.wiring import GRAPH

__all__: list[str] = []

# Those that do not follow from the name of the operator.
_NAMES = {
    "batch_norm_inference": "NativeBatchNormBackward0",
    "batch_norm_train": "NativeBatchNormBackward0",
    "cholesky": "LinalgCholeskyExBackward0",
    "contiguous": "CloneBackward0",
    "copy": "CopyBackwards",
    "copy_": "CopyBackwards",
    "cross_entropy": "NllLossBackward0",
    "det": "LinalgDetBackward0",
    "embedding_lookup": "EmbeddingBackward0",
    "entr": "SpecialEntrBackward0",
    # In place, PyTorch has a derivative of its own, which reads the result.
    **{
        f"{name}_": f"{node}Backward1"
        for name, node in {
            "celu": "Celu",
            "elu": "Elu",
            "leaky_relu": "LeakyRelu",
            "rrelu": "RreluWithNoise",
            "selu": "Elu",
            "threshold": "Threshold",
        }.items()
    },
    "erfcx": "SpecialErfcxBackward0",
    "fft_c2c": "FftC2CBackward0",
    "fft_c2r": "FftC2RBackward0",
    "fft_r2c": "FftR2CBackward0",
    "flatten": "ViewBackward0",
    "chunk": "SplitBackward0",
    "smooth_l1_loss": "SmoothL1LossBackward0",
    "group_norm": "NativeGroupNormBackward0",
    "i0e": "SpecialI0EBackward0",
    "i1": "SpecialI1Backward0",
    "i1e": "SpecialI1EBackward0",
    "layer_norm": "NativeLayerNormBackward0",
    "linalg_inv": "LinalgInvExBackward0",
    "linalg_solve": "LinalgSolveExBackward0",
    "log1p": "Log1PBackward0",
    "log_ndtr": "SpecialLogNdtrBackward0",
    "logsigmoid": "LogSigmoidBackward0",
    "narrow": "SliceBackward0",
    "ctc_nll": "CtcLossBackward0",
    "ndtr": "MulBackward1",
    "ndtri": "SpecialNdtriBackward0",
    "power_norm": "LinalgVectorNormBackward0",
    "relu6": "HardtanhBackward0",
    "reshape": "ViewBackward0",
    "rms_norm": "MulBackward0",
    "selu": "EluBackward0",
    "square": "PowBackward0",
    "to_device": "ToCopyBackward0",
    "to_dtype": "ToCopyBackward0",
    "trunc_divide": "DivBackward2",
}


_PUT = "IndexPutBackward0"
_LINEAR: dict[tuple[bool, bool], str] = {
    (True, True): "AddmmBackward0",
    (True, False): "MmBackward0",
    (False, True): "ViewBackward0",
    (False, False): "UnsafeViewBackward0",
}
#: what follows from the arguments: which of PyTorch's overloads, or which of its operators
_BY_CALL: dict[str, Callable[[OpNode], str]] = {
    "adaptive_avg_pool": lambda node: _of_average(node.shape),
    "avg_pool": lambda node: f"AvgPool{len(node.shape) - 2}DBackward0",
    "clamp": lambda node: f"ClampBackward{int(node.next_edges[1:] == [None, None])}",
    "interpolate": lambda node: _of_area(node.shape),
    "grid_sample": lambda node: f"GridSampler{len(node.shape) - 2}DBackward0",
    "adaptive_max_pool": lambda node: _of_maxima("AdaptiveMaxPool{}D", node.shape),
    "max_pool": lambda node: _of_maxima("MaxPool{}DWithIndices", node.shape),
    "max_pool_with_indices": lambda node: _of_maxima("MaxPool{}DWithIndices", node.shape),
    "getitem": lambda node: _of_index(_saved(node, "index")),
    "index_put": lambda node: _of_write(_saved(node, "indices")),
    "linear": lambda node: _LINEAR[len(node.shape) == 2, node.next_edges[2] is not None],
    "matmul": lambda node: ("Dot", "Mv", "Mm", "UnsafeView")[min(len(node.shape), 3)] + "Backward0",
    "mean": lambda node: f"MeanBackward{int(_saved(node, 'dim') is not None)}",
    "div": lambda node: "MulBackward0" if node.number_first else "DivBackward0",
    "pow": lambda node: _of_power(node),
    "sub": lambda node: "RsubBackward1" if node.number_first else "SubBackward0",
    "sum": lambda node: f"SumBackward{int(_saved(node, 'dim') is not None)}",
}


def _of_power(node: OpNode) -> str:
    return f"PowBackward{2 if node.number_first else int(node.next_edges[1] is not None)}"


def _of_average(shape: Any) -> str:
    """An average over all places is a mean in PyTorch, in one dimension excepted."""
    whole = len(shape) > 3 and all(size == 1 for size in shape[2:])
    return "MeanBackward1" if whole else f"AdaptiveAvgPool{len(shape) - 2}DBackward0"


def _of_area(shape: Any) -> str:
    """Resampling by areas is an adaptive average there."""
    return "SqueezeBackward1" if len(shape) == 3 else _of_average(shape)


def _of_maxima(name: str, shape: Any) -> str:
    """In one dimension PyTorch computes the maxima of a plane with one row."""
    n = len(shape) - 2
    return "SqueezeBackward1" if n == 1 else f"{name.format(n)}Backward0"


def _of_index(index: Any) -> str:
    """The last of the views that an index is in PyTorch, or what picks elements."""
    items = index if isinstance(index, tuple) else (index,)
    views = []
    for item in items:
        if item is None:
            views.append("UnsqueezeBackward0")
        elif isinstance(item, slice):
            views += ["SliceBackward0"] * (item != slice(None))
        elif type(item) is int:
            views.append("SelectBackward0")
        elif item is not Ellipsis:
            return "IndexBackward0"
    return views[-1] if views else "AliasBackward0"


def _of_write(index: Any) -> str:
    """What a write to the elements of this index is in PyTorch: to a view, or by an index."""
    items = index if isinstance(index, (tuple, list)) else (index,)
    basic = all(i is None or i is Ellipsis or isinstance(i, (int, slice)) for i in items)
    return "CopySlices" if basic and not any(i is True or i is False for i in items) else _PUT


def _saved(node: OpNode, name: str) -> Any:
    """What ``node`` saved of the argument ``name``; None also where it saved nothing of it."""
    place = _place(node, name)
    return None if place is None or place >= len(node.saved) else GRAPH.unpack(node.saved[place])


def _parameters(opname: str) -> list[str]:
    op = TABLE.snapshot.ops.get(opname)
    return [] if op is None else [p.name for p in op.schema.params]


def _place(node: OpNode, name: str) -> int | None:
    names = _parameters(node.opname)
    source = names.index(name) << NUMBER | ARGUMENT if name in names else -1
    return node.plan.saves.index(source) if source in node.plan.saves else None


def node_name(node: Node) -> str:
    """``AddBackward0`` for ``add`` and ``add_``."""
    op = node.opname
    functional = op.removesuffix("_")
    if isinstance(node, OpNode):
        if node.shown is not None:
            return str(node.shown)
        if functional in _BY_CALL:
            return _BY_CALL[functional](node)
    known = _NAMES.get(op) or _NAMES.get(functional)
    if known is not None:
        return known
    return f"{camel_case(functional)}Backward0"


def _argument(name: str) -> property:
    def saved(node: OpNode) -> Any:
        place = _place(node, name)
        if place is None:
            raise AttributeError(f"{node.name()} saved nothing of {name!r}")
        if node.freed:
            raise GRAPH.freed_error(node)
        return GRAPH.unpack(node.saved[place])

    return property(saved, doc=f"What was saved of the argument ``{name}``.")


def _result(node: OpNode) -> Any:
    if all(source & KIND not in (OUT, OUT_AT) for call in node.plan.calls for source in call.takes):
        raise AttributeError(f"{node.name()} saved no result")
    if node.freed:
        raise GRAPH.freed_error(node)
    found = [node.unpack_output(number) for number in node.out_numbers]
    return found if node.multi_output else found[0]


@cache
def _class(name: str, opname: str) -> type[OpNode]:
    """``OpNode`` under another name, with ``_saved_...`` for what may have been saved."""
    members: dict[str, Any] = {"__slots__": (), "__module__": "builtins", "__doc__": None}
    for parameter in _parameters(opname):
        members[f"_saved_{parameter}"] = _argument(parameter)
    members["_saved_result"] = property(_result, doc="The result, where the derivative reads it.")
    return type(name, (OpNode,), members)


def as_named(node: Any) -> Any:
    """``node`` as an instance of the class of its name: what a user gets to see of it."""
    if type(node) is OpNode:
        node.__class__ = _class(node_name(node), node.opname)
    return node


GRAPH.node_name = node_name
GRAPH.as_named = as_named
