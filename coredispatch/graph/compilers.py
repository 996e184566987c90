"""Compilers of graphs: the interpreter that is always there, and those that plugins bring."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coredispatch.graph.codegen import compile_code, python_code
from coredispatch.graph.graph import Graph
from coredispatch.plugin import OpError
from coredispatch.registry import plugins

__all__ = ["Compiled", "Compiler", "compiler_named", "compiler_names", "eager"]

Compiled = Callable[..., Sequence[Any]]
Compiler = Callable[[Graph, Sequence[Any]], Compiled | None]

_NUMBERS = itertools.count()
#: names that mean "the best there is": PyTorch's default
_BEST = ("inductor", "default")


def eager(graph: Graph, inputs: Sequence[Any]) -> Compiled:
    """The graph as straight Python that calls one operator after the other, on any backend."""
    run = compile_code(python_code(graph, bound=True), f"<compiled graph {next(_NUMBERS)}>")

    def call(*values: Any) -> Any:
        return run(None, *values)

    return call


def compiler_names() -> list[str]:
    """The compilers by name: those of the plugins, and ``eager``."""
    return [*plugins.compilers(), "eager"]


def compiler_named(name: Any, settings: Mapping[str, Any] | None = None) -> Compiler:
    """The compiler that ``name`` stands for.

    ``"eager"`` (also ``"aot_eager"``) is the interpreter, ``"inductor"`` asks the plugins in turn
    and then the interpreter, any other name is that of a plugin with ``coredispatch_compile``.
    A function ``(graph, inputs) -> callable`` is a compiler itself. ``settings`` are for plugins.

    Raises :class:`OpError` for a name that nobody has.
    """
    if callable(name):
        return _asked(name)
    if name in ("eager", "aot_eager", "eager_noexcept"):
        return eager
    found, settings = plugins.compilers(), dict(settings or {})
    if name in _BEST:
        return _first(list(found.values()), settings)
    if name not in found:
        raise OpError(
            f"there is no compiler {name!r}",
            fix=f"use one of {', '.join(map(repr, (*found, 'eager')))}, or install its plugin",
        )
    return _asked(_by_keyword(found[name], settings))


def _by_keyword(function: Callable[..., Any], settings: dict[str, Any]) -> Compiler:
    return lambda graph, inputs: function(graph=graph, inputs=inputs, settings=settings)


def _asked(function: Callable[..., Any]) -> Compiler:
    """A compiler of somebody else's; the interpreter takes what it rejects."""

    def compile(graph: Graph, inputs: Sequence[Any]) -> Compiled:
        made = function(graph, inputs)
        if made is None:
            return eager(graph, inputs)
        if isinstance(made, Graph):  # "return gm", as backends of PyTorch may
            return eager(made, inputs)
        if not callable(made):
            raise OpError(
                f"the compiler gave {type(made).__name__}, which cannot be called",
                fix="return a function of the graph's inputs, or None to reject the graph",
            )
        result: Compiled = made
        return result

    return compile


def _first(functions: list[Callable[..., Any]], settings: dict[str, Any]) -> Compiler:
    def compile(graph: Graph, inputs: Sequence[Any]) -> Compiled:
        for function in functions:
            made = function(graph=graph, inputs=inputs, settings=settings)
            if made is not None:
                result: Compiled = made
                return result
        return eager(graph, inputs)

    return compile
