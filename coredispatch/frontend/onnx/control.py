"""The control nodes of a graph as ONNX's ``If`` and ``Loop``.

A subgraph of ONNX sees the values around it, so that what a branch uses is no input of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Tensor
from coredispatch.frontend.onnx.errors import UnsupportedOperatorError
from coredispatch.frontend.utils import _pytree as pytree
from coredispatch.graph import Graph, Node
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import dtypes

__all__ = ["translate_branch", "translate_loop", "used_names"]


def translate_branch(translator: Any, node: Node) -> Any:
    """The result of an ``if``, in the structure of its branches."""
    condition, *given = translator.values(node.args)
    graphs: list[Any] = []
    infos: list[Any] = []
    spec: Any = None
    for inner in node.graphs:
        begun = _begin(translator)
        for place, value in zip(inner.placeholders, given):
            translator.env[place] = value
        result = _steps(translator, inner)
        leaves, spec = pytree.tree_flatten(result)
        names = [_tensor(value, node) for value in leaves]
        infos = [value.info for value in leaves]
        graphs.append(_end(translator, begun, "branch", [], names, infos))
    then, otherwise = graphs
    made = translator.builder.op(
        "If",
        _truth(translator, condition),
        outputs=len(infos),
        then_branch=then,
        else_branch=otherwise,
    )
    return pytree.tree_unflatten(_held(made, infos), spec)


def translate_loop(translator: Any, node: Node) -> tuple[Any, ...]:
    """What a ``loop`` carries at its end."""
    from onnx import TensorProto, helper

    trips, condition, *carried = translator.values(node.args)
    (inner,) = node.graphs
    builder = translator.builder
    _, *places = inner.placeholders
    last: Any = inner.output_node()
    _, *ends = last.args[0]
    # Sizes come in from around the loop: a turn may compute them anew, and does not change them.
    changed = [
        i
        for i, (place, end) in enumerate(zip(places, ends))
        if end is not place and isinstance(carried[i], Tensor)
    ]
    begun = _begin(translator)
    turn, going = builder.unique("turn"), builder.unique("going")
    inputs = [
        helper.make_tensor_value_info(turn, TensorProto.INT64, []),
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
    ]
    for i, (place, value) in enumerate(zip(places, carried)):
        if i in changed:
            name = builder.unique("carried")
            inputs.append(translator.value_info(name, value.info))
            value = Tensor(name, value.info)
        translator.env[place] = value
    again, *results = _steps(translator, inner)
    names = [_truth(translator, again), *(_tensor(results[i], node) for i in changed)]
    infos = [carried[i].info for i in changed]
    known = [ValueInfo((), dtypes.bool_, results[0].info.device), *infos] if infos else []
    body = _end(translator, begun, "body", inputs, names, known)
    made = builder.op(
        "Loop",
        None if trips is None else _scalar(translator, trips, dtypes.int64),
        _truth(translator, condition),
        *(carried[i] for i in changed),
        outputs=len(changed),
        body=body,
    )
    for i, held in zip(changed, _held(made, infos)):
        carried[i] = held
    return tuple(carried)


def used_names(nodes: Any) -> set[str]:
    """The names that nodes read, those of the graphs inside of them too."""
    found: set[str] = set()
    for node in nodes:
        found |= set(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= used_names(attribute.g.node)
    return found


def _begin(translator: Any) -> Any:
    builder = translator.builder
    outer, builder.nodes = builder.nodes, []
    return outer


def _steps(translator: Any, graph: Graph) -> Any:
    for node in graph.nodes:
        translator.step(node)
    last: Any = graph.output_node()
    return translator.values(last.args[0])


def _end(
    translator: Any, outer: Any, name: str, inputs: Any, names: list[str], infos: list[Any]
) -> Any:
    """The graph of what was written since ``outer``; its outputs have names of their own."""
    from onnx import helper

    builder, outputs = translator.builder, []
    for source, info in zip(names, infos):
        made = builder.unique(f"{name}_out")
        builder.nodes.append(translator.identity(source, made))
        outputs.append(translator.value_info(made, info))
    nodes, builder.nodes = builder.nodes, outer
    return helper.make_graph(nodes, builder.unique(name), inputs, outputs)


def _truth(translator: Any, condition: Any) -> str:
    """A condition as ONNX takes it: a bool without dimensions."""
    return _scalar(translator, condition, dtypes.bool_)


def _scalar(translator: Any, value: Any, dtype: Any) -> str:
    """A number, length or tensor of one element as a tensor without dimensions."""
    name = translator.builder.cast(value, dtype)
    if isinstance(value, Tensor) and value.rank:
        name = translator.builder.op("Reshape", name, np.array([], dtype=np.int64))
    return str(name)


def _tensor(value: Any, node: Node) -> str:
    if not isinstance(value, Tensor):
        raise UnsupportedOperatorError(
            f"{node.format_node()} carries {value!r}, which is no tensor; ONNX has tensors there"
        )
    return value.name


def _held(made: Any, infos: list[Any]) -> list[Tensor]:
    names = made if isinstance(made, list) else [made]
    return [Tensor(name, info) for name, info in zip(names, infos)]
