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
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.derivative import ARGUMENT, KIND, NUMBER, OUT, OUT_AT
from coredispatch.registry.wiring import GRAPH

__all__: list[str] = []

# Those that do not follow from the name of the operator.
_NAMES = {
    "batch_norm_inference": "NativeBatchNormBackward0",
    "batch_norm_train": "NativeBatchNormBackward0",
    "contiguous": "CloneBackward0",
    "copy": "CopyBackwards",
    "copy_": "CopyBackwards",
    "cross_entropy": "NllLossBackward0",
    "det": "LinalgDetBackward0",
    "embedding_lookup": "EmbeddingBackward0",
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
    "ndtri": "SpecialNdtriBackward0",
    "power_norm": "LinalgVectorNormBackward0",
    "relu6": "HardtanhBackward0",
    "reshape": "ViewBackward0",
    "selu": "EluBackward0",
    "square": "PowBackward0",
    "to_device": "ToCopyBackward0",
    "to_dtype": "ToCopyBackward0",
}


_LINEAR: dict[tuple[bool, bool], str] = {
    (True, True): "AddmmBackward0",
    (True, False): "MmBackward0",
    (False, True): "ViewBackward0",
    (False, False): "UnsafeViewBackward0",
}
#: what follows from the arguments: which of PyTorch's overloads, or which of its operators
_BY_CALL: dict[str, Callable[[OpNode], str]] = {
    "adaptive_avg_pool": lambda node: f"AdaptiveAvgPool{len(node.shape) - 2}DBackward0",
    "avg_pool": lambda node: f"AvgPool{len(node.shape) - 2}DBackward0",
    "clamp": lambda node: f"ClampBackward{int(not any(node.next_edges[1:]))}",
    "grid_sample": lambda node: f"GridSampler{len(node.shape) - 2}DBackward0",
    "max_pool": lambda node: f"MaxPool{len(node.shape) - 2}DWithIndicesBackward0",
    "getitem": lambda node: _of_index(_saved(node, "index")),
    "linear": lambda node: _LINEAR[len(node.shape) == 2, node.next_edges[2] is not None],
    "matmul": lambda node: ("Dot", "Mv", "Mm", "UnsafeView")[min(len(node.shape), 3)] + "Backward0",
    "mean": lambda node: f"MeanBackward{int(_saved(node, 'dim') is not None)}",
    "pow": lambda node: f"PowBackward{int(node.next_edges[1] is not None)}",
    "squeeze": lambda node: f"SqueezeBackward{int(_saved(node, 'dim') is not None)}",
    "sum": lambda node: f"SumBackward{int(_saved(node, 'dim') is not None)}",
}


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
    if isinstance(node, OpNode) and functional in _BY_CALL:
        return _BY_CALL[functional](node)
    known = _NAMES.get(op) or _NAMES.get(functional)
    if known is not None:
        return known
    return "".join(part[:1].upper() + part[1:] for part in functional.split("_")) + "Backward0"


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
