"""``coredispatch.fx``: symbolic tracing, and programs that rewrite programs.

``symbolic_trace`` runs a module with proxies and gives a ``GraphModule``; its graph is that of
:mod:`coredispatch.graph`, with the API of ``torch.fx``.
"""

from coredispatch.frontend.fx import _compatibility as _compatibility
from coredispatch.frontend.fx import (
    graph,
    interpreter,
    node,
    passes,
    proxy,
    subgraph_rewriter,
)
from coredispatch.frontend.fx._symbolic_trace import (
    PH,
    ProxyableClassMeta,
    Tracer,
    symbolic_trace,
    wrap,
)
from coredispatch.frontend.fx.graph_module import GraphModule
from coredispatch.frontend.fx.node import has_side_effect
from coredispatch.frontend.fx.proxy import (
    Attribute,
    GraphAppendingTracer,
    ParameterProxy,
    Proxy,
    TraceError,
    TracerBase,
)
from coredispatch.frontend.fx.transformer import Match, Transformer, replace_pattern
from coredispatch.graph import Graph, Interpreter, Node, map_aggregate, map_arg
from coredispatch.graph.codegen import PythonCode

#: the module of the graph's text, by PyTorch's name
CodeGen = PythonCode

__all__ = [
    "PH",
    "Attribute",
    "CodeGen",
    "Graph",
    "GraphAppendingTracer",
    "GraphModule",
    "Interpreter",
    "Match",
    "Node",
    "ParameterProxy",
    "Proxy",
    "ProxyableClassMeta",
    "TraceError",
    "Tracer",
    "TracerBase",
    "Transformer",
    "graph",
    "has_side_effect",
    "interpreter",
    "map_aggregate",
    "map_arg",
    "node",
    "passes",
    "proxy",
    "replace_pattern",
    "subgraph_rewriter",
    "symbolic_trace",
    "wrap",
]
