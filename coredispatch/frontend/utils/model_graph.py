"""A traced model as the graph that TensorBoard draws: ``SummaryWriter.add_graph``.

The names of nodes are paths: TensorBoard draws a box around the nodes of each module, as
``Net/Sequential[head]/Linear[0]/linear``. The format is TensorFlow's ``GraphDef``
(tensorflow/core/framework/graph.proto).
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn.module import Module

__all__ = ["graph_of"]


def graph_of(model: Any, example: Any, strict: bool = True) -> tuple[Any, str]:
    """The ``GraphDef`` of ``model`` called with ``example``, and the text of the traced graph.

    ``example`` is a tensor, or a tuple of the arguments. Raises what ``jit.trace`` does for a
    program that it cannot follow.
    """
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.versions_pb2 import VersionDef

    from coredispatch.frontend import jit

    traced = jit.trace(model, example, check_trace=False, strict=strict)
    graph = traced.inlined_graph
    paths = _Paths(model)
    names = {node: paths.of(node) for node in graph.nodes}
    nodes = [_node(node, names) for node in graph.nodes if node.op != "get_attr" or node.users]
    return GraphDef(node=nodes, versions=VersionDef(producer=22)), str(graph)


class _Paths:
    """Where nodes stand: the modules around them, by class and name."""

    def __init__(self, model: Any) -> None:
        self.modules = dict(model.named_modules()) if isinstance(model, Module) else {}
        self.root = type(model).__name__ if self.modules else getattr(model, "__name__", "model")

    def box(self, scope: str) -> str:
        """``head.0`` as ``Net/Sequential[head]/Linear[0]``."""
        found, path = [self.root], ""
        for part in filter(None, scope.split(".")):
            path = f"{path}.{part}" if path else part
            module = self.modules.get(path)
            found.append(part if module is None else f"{type(module).__name__}[{part}]")
        return "/".join(found)

    def of(self, node: Any) -> str:
        """The name of a node, which nothing else has: its own name is part of it."""
        if node.op == "placeholder":
            return f"input/{node.name}"
        if node.op == "output":
            return f"output/{node.name}"
        if node.op == "get_attr":
            owner, _, attribute = str(node.target).rpartition(".")
            return f"{self.box(owner)}/{attribute}/{node.name}"
        return f"{self.box(node.meta.get('scope', ''))}/{node.name}"


def _kind(node: Any) -> str:
    if node.op in ("placeholder", "output"):
        return "IO Node"
    if node.op == "get_attr":
        return "prim::GetAttr"
    name = getattr(node.target, "name", None) or getattr(node.target, "__name__", None)
    return f"aten::{name or node.target}"


def _node(node: Any, names: dict[Any, str]) -> Any:
    from tensorboardX.proto.attr_value_pb2 import AttrValue
    from tensorboardX.proto.node_def_pb2 import NodeDef
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

    written = [str(a) for a in node.args if not hasattr(a, "users")]
    attributes = {"attr": AttrValue(s=repr(written or "").encode())}
    value = node.meta.get("value")
    if getattr(value, "shape", None) is not None:
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=int(n)) for n in value.shape])
        attributes["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=[shape]))
    return NodeDef(
        name=names[node],
        op=_kind(node),
        input=[names[source] for source in node.all_input_nodes],
        attr=attributes,
    )
