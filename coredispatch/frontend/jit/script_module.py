"""Modules whose code is a graph: what ``trace`` and ``load`` give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coredispatch.frontend.nn.module import Module, buffers_of
from coredispatch.graph import Graph, compile_code
from coredispatch.plugin import OpError

__all__ = ["RecursiveScriptModule", "ScriptFunction", "ScriptModule", "TopLevelTracedModule"]

_COUNT = 0


def compiled(graph: Graph, name: str) -> Any:
    """The Python function of a graph, under a file name of its own."""
    global _COUNT
    _COUNT += 1
    return compile_code(graph.python_code(), f"<coredispatch graph {_COUNT} of {name}>")


class ScriptModule(Module):
    """A module with parameters and submodules whose ``forward`` is a graph, and no Python class.

    Attributes:
        graph: the graph of ``forward``; calls of submodules are single nodes.
        original_name: the name of the class that the module was made from.
    """

    def __init__(self, original_name: str = "ScriptModule", graph: Graph | None = None) -> None:
        super().__init__()
        state = self.__dict__
        state["original_name"] = original_name
        state["_graph"] = graph
        state["_function"] = None if graph is None else compiled(graph, original_name)
        if graph is not None:
            graph.owning_module = self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        function = self._function
        if function is None:
            raise OpError(
                f"the submodule {self.original_name!r} was never called as a whole in the trace, "
                "so it has no graph of its own",
                fix="call the module that it is part of",
            )
        return function(self, *args, **kwargs)

    @property
    def graph(self) -> Graph:
        """The graph of ``forward``."""
        graph: Graph | None = self._graph
        if graph is None:
            raise OpError(
                f"{self.original_name!r} has no graph of its own: it was not called as a whole",
                fix="look at the graph of the module that it is part of",
            )
        return graph

    @property
    def code(self) -> str:
        """The graph as Python text."""
        return self.graph.code

    @property
    def inlined_graph(self) -> Graph:
        """The graph with the graphs of the submodules in place of their calls."""
        from coredispatch.graph.passes.inlining import inline_modules

        return inline_modules(self.graph)

    def __getitem__(self, index: int | slice | str) -> Any:
        """A submodule of what was a ``Sequential``, ``ModuleList`` or ``ModuleDict``."""
        if isinstance(index, str):
            return self._modules[index]
        return list(self._modules.values())[index]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __bool__(self) -> bool:
        return True

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the module to a file; see :func:`coredispatch.jit.save`."""
        from coredispatch.frontend.jit.saving import save

        save(self, f, _extra_files)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _copied(self, memo)

    def __reduce__(self) -> Any:
        import io

        from coredispatch.frontend.jit.saving import save

        buffer = io.BytesIO()
        save(self, buffer)
        return _loaded, (buffer.getvalue(),)

    def _get_name(self) -> str:
        return str(self.original_name)

    def extra_repr(self) -> str:
        """The class that the module was made from."""
        return f"original_name={self.original_name}"


class RecursiveScriptModule(ScriptModule):
    """A module that was loaded, or compiled from source."""


class TopLevelTracedModule(ScriptModule):
    """What ``jit.trace`` makes of a module. Parameters and buffers are the module's own."""


class ScriptFunction:
    """A function whose code is a graph.

    Attributes:
        graph, code: the graph, and it as Python text.
        name: the name of the function that was traced.
    """

    def __init__(self, graph: Graph, name: str, constants: Module) -> None:
        self.graph, self.name, self._constants = graph, name, constants
        self.__name__ = name
        self._function = compiled(graph, name)
        graph.owning_module = constants

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._constants, *args, **kwargs)

    @property
    def code(self) -> str:
        """The graph as Python text."""
        return self.graph.code

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the function to a file; see :func:`coredispatch.jit.save`."""
        from coredispatch.frontend.jit.saving import save

        save(self, f, _extra_files)

    def __repr__(self) -> str:
        return f"<coredispatch.jit.ScriptFunction {self.name!r}>"


def _loaded(data: bytes) -> Any:
    import io

    from coredispatch.frontend.jit.saving import load

    return load(io.BytesIO(data))


def _copied(module: ScriptModule, memo: dict[int, Any]) -> ScriptModule:
    """A deep copy: tensors and submodules are copied, graphs are compiled anew."""
    import copy

    known: ScriptModule | None = memo.get(id(module))
    if known is not None:
        return known
    graph = None if module._graph is None else module._graph.copy()
    made = type(module)(module.original_name, graph)
    memo[id(module)] = made
    for name, parameter in module._parameters.items():
        made.register_parameter(name, copy.deepcopy(parameter, memo))
    for name, persistent in buffers_of(module).items():
        made.register_buffer(name, copy.deepcopy(module._buffers[name], memo), persistent)
    for name, child in module._modules.items():
        made.add_module(name, copy.deepcopy(child, memo))
    made.training = module.training
    return made
