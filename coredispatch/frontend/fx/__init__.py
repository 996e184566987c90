"""``cd.fx``: marks that programs make for a tracer, which is not there yet."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.announced import announced_class, announced_function
from coredispatch.frontend.fx import _compatibility, _symbolic_trace, graph, node, proxy
from coredispatch.frontend.fx.graph import Graph
from coredispatch.frontend.fx.node import Node, has_side_effect, map_arg
from coredispatch.frontend.fx.proxy import Proxy
from coredispatch.frontend.nn.module import Module

__all__ = [
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "Transformer",
    "graph",
    "has_side_effect",
    "map_arg",
    "node",
    "proxy",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]

_FIX = "call the module itself; forward hooks see what its submodules return"

GraphModule = announced_class("fx.GraphModule", _FIX, Module)
Tracer = announced_class("fx.Tracer", _FIX)
Interpreter = announced_class("fx.Interpreter", _FIX)
Transformer = announced_class("fx.Transformer", _FIX, Interpreter)
symbolic_trace = announced_function("fx.symbolic_trace", _FIX)
replace_pattern = announced_function("fx.replace_pattern", _FIX)


def wrap(fn_or_name: Any) -> Any:
    """A mark: a tracer takes calls of the function as one step. Returns what it is given.

    Raises RuntimeError for anything but a function or the name of one.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    return fn_or_name


_compatibility, _symbolic_trace = _compatibility, _symbolic_trace
