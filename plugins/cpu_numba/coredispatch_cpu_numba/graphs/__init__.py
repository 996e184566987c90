"""The compiler of graphs: groups of operators as single loops, whole graphs as single calls."""

from __future__ import annotations

from typing import Any

__all__ = ["compile_graph"]


def _elsewhere(value: Any) -> bool:
    """Whether a value, or a part of it, is no array of the processor's: on meta, or sparse."""
    if isinstance(value, (list, tuple)):
        return any(map(_elsewhere, value))
    if getattr(value, "layout", "strided") != "strided":
        return True
    device = getattr(value, "device", None)
    return device is not None and getattr(device, "type", "cpu") != "cpu"


def compile_graph(graph: Any, inputs: Any) -> Any:
    """A function that computes what ``graph`` computes, for inputs like these.

    Where an example is missing (None) the graph is compiled when the function is first called.
    None for a graph of values that are no arrays of the processor's.
    """
    from .layout import Unfit
    from .running import Compiled

    if any(_elsewhere(node.meta.get("value")) for node in graph.nodes):
        return None
    made = Compiled(graph)
    if all(example is not None for example in inputs):
        try:
            made.prepare(tuple(inputs))
        except Unfit:
            return None
    return made
