"""The graph that trace, script, fx, export and compile share: a program as data.

``Graph`` and ``Node`` are what a program consists of, with the names of ``torch.fx``;
``Interpreter`` and ``run`` run it node by node, ``graph.code`` is its Python text, and the modules
in ``passes`` turn one graph into another.
"""

from typing import Any

from coredispatch.graph.calls import bound_arguments, call
from coredispatch.graph.codegen import PythonCode, compile_code, python_code
from coredispatch.graph.graph import Graph, GraphError, NodeList
from coredispatch.graph.interpreter import Interpreter, run
from coredispatch.graph.node import Node, map_aggregate, map_arg
from coredispatch.graph.values import ValueInfo, info_of

__all__ = [
    "Builder",
    "Graph",
    "GraphError",
    "Interpreter",
    "Node",
    "NodeList",
    "PythonCode",
    "ValueInfo",
    "bound_arguments",
    "call",
    "compile_code",
    "info_of",
    "map_aggregate",
    "map_arg",
    "python_code",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "Builder":  # it stands on the layer of traces, which is loaded on first use
        from coredispatch.graph.builder import Builder

        return Builder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
