"""What does not depend on the inputs, computed once and for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch._warnings import computed_again
from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node, map_arg
from coredispatch.graph.passes.aliasing import Aliases
from coredispatch.graph.passes.common import repeatable
from coredispatch.graph.targets import switches_mode
from coredispatch.plugin import Value

__all__ = ["fold_constants"]

#: results beyond this many elements are computed each time: a file would hold them
_MOST = 1 << 20


def fold_constants(graph: Graph, constant: Callable[[Any], str]) -> Graph:
    """A copy in which calls on constants are their results.

    A call counts that has no argument but constants, gives the same each time, and whose result is
    neither written to nor returned. Parameters and buffers are no constants. ``constant(tensor)``
    keeps a result and gives the name of the attribute that has it.
    """
    made = graph.copy()
    aliases = Aliases(made)
    values: dict[Node, Any] = {}
    for node in made.nodes:
        if switches_mode(node):
            break  # what is computed behind it depends on the mode
        if not repeatable(node) or not aliases.private(node):
            continue
        if any(used not in values for used in node.all_input_nodes):
            continue
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: values[n])
        with computed_again():
            if node.op == "call_method":
                result = getattr(args[0], node.target)(*args[1:], **kwargs)
            else:
                result = node.target(*args, **kwargs)
        if _small(result):
            values[node] = result
    for node, value in values.items():
        outside = [user for user in node.users if user not in values]
        if not outside:
            continue
        if isinstance(value, Value):
            with made.inserting_before(node):
                new: Any = made.get_attr(constant(value))
        elif isinstance(value, (bool, int, float, str, type(None))):
            new = value
        else:
            continue
        for user in outside:
            user.replace_input_with(node, new)
    made.eliminate_dead_code()
    made.lint()
    return made


def _small(result: Any) -> bool:
    parts = result if isinstance(result, (tuple, list)) else [result]
    return all(not isinstance(part, Value) or part.numel() <= _MOST for part in parts)
