"""Hooks of compiled modules: graphs that run before and behind ``forward``."""

from __future__ import annotations

import inspect
import operator
from typing import Any

from coredispatch.frontend.nn.module import Module
from coredispatch.graph import Graph

__all__ = ["HOOKS", "ScriptHook", "attach", "called_graph", "copy_hooks", "script_hooks"]


#: the kinds of hooks that are compiled, in the order in which they run
HOOKS = ("forward_pre", "forward")


class ScriptHook:
    """A hook of a module whose code is a graph: of all inputs as one tuple, and of the output.

    Attributes:
        kind: "forward_pre" or "forward".
        graph, name: what runs, and the name of the function that it was.
    """

    def __init__(self, kind: str, graph: Graph, name: str, owner: Any) -> None:
        from coredispatch.frontend.jit.script_module import GraphMethod

        self.kind, self.graph, self.name = kind, graph, name
        self.__name__ = name
        self._run = GraphMethod(graph, name, owner.original_name).run
        graph.owning_module = owner

    def __call__(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *output: Any
    ) -> Any:
        given = all_arguments(module, args, kwargs)
        found = self._run(module, given, *output)
        if self.kind == "forward" or found is None:
            return found
        return (found if isinstance(found, tuple) else (found,)), {}


def all_arguments(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call of a module, those by name and defaults in their places."""
    signature = getattr(module, "_signature", None)
    if signature is not None:
        given: tuple[Any, ...] = signature(args, kwargs)
        return given
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


def attach(module: Any, kind: str, graph: Graph, name: str) -> None:
    """Let ``graph`` run before (``kind`` "forward_pre") or behind ("forward") each call."""
    hook = ScriptHook(kind, graph, name, module)
    module._add_hook(kind, hook, options=(True, False))


def script_hooks(module: Module, kind: str) -> list[ScriptHook]:
    """The compiled hooks of one kind, in the order in which they run."""
    hooks = (module._hooks or {}).get(kind, {})
    return [hook for hook in hooks.values() if isinstance(hook, ScriptHook)]


def copy_hooks(module: Module, made: Module) -> None:
    """Give ``made`` the hooks of ``module``: of compiled ones graphs of its own."""
    for kind, hooks in (module._hooks or {}).items():
        if kind == "options":
            continue
        for number, hook in hooks.items():
            if isinstance(hook, ScriptHook):
                attach(made, kind, hook.graph.copy(), hook.name)
            else:
                options = (module._hooks or {}).get("options", {}).get(number)
                made._add_hook(kind, hook, options=options)


def called_graph(module: Module, graph: Graph) -> Graph:
    """``graph``, that of a module's ``forward``, between the compiled hooks of the module."""
    before, behind = script_hooks(module, "forward_pre"), script_hooks(module, "forward")
    if not (before or behind):
        return graph
    made = Graph(graph.owning_module)
    places = graph.placeholders
    values: Any = tuple(made.node_copy(place) for place in places)
    for hook in before:
        found = made.graph_copy(hook.graph, {hook.graph.placeholders[0]: values})
        if found is not None:
            values = _parts(hook, made, found, len(places))
    result = made.graph_copy(graph, dict(zip(places, values)))
    for hook in behind:
        found = made.graph_copy(hook.graph, dict(zip(hook.graph.placeholders, (values, result))))
        result = result if found is None else found
    last = graph.output_node()
    output = made.output(result)
    if last is not None:
        output.type, output.meta = last.type, dict(last.meta)
    made.lint()
    return made


def _parts(hook: ScriptHook, graph: Graph, value: Any, count: int) -> tuple[Any, ...]:
    """The arguments that a hook gave: a tuple of them, or the only one."""
    if isinstance(value, tuple):
        return value
    last = hook.graph.output_node()
    kind = None if last is None else last.meta.get("type")
    if kind is None or kind.name not in ("Tuple", "NamedTuple"):
        return (value,)
    return tuple(graph.call_function(operator.getitem, (value, i)) for i in range(count))
