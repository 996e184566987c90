"""Modules and functions whose code is a graph: what ``trace``, ``script`` and ``load`` give."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Generic, ParamSpec, TypeVar, cast

from coredispatch.frontend.jit.failing import explained
from coredispatch.frontend.jit.module_hooks import HOOKS, copy_hooks, script_hooks
from coredispatch.frontend.jit.runtime import restoring
from coredispatch.frontend.jit.signature import Signature
from coredispatch.frontend.jit.traced_calls import call_traced, recorder_of_scripts
from coredispatch.frontend.nn.module import Module, buffers_of
from coredispatch.frontend.ownership import of_library
from coredispatch.graph import Graph, compile_code
from coredispatch.plugin import OpError

__all__ = [
    "CompilationUnit",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TopLevelTracedModule",
    "export_opnames",
]

_COUNT = 0
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Compiled:
    """The Python function of a graph, under a file name of its own.

    Attributes:
        function: takes the module and the inputs. Callers catch what it raises themselves: nested
            modules are nested calls, of which Python allows a thousand.
    """

    def __init__(self, graph: Graph, name: str) -> None:
        global _COUNT
        _COUNT += 1
        self.code, self.filename = graph.python_code(), f"<coredispatch graph {_COUNT} of {name}>"
        function = compile_code(self.code, self.filename)
        modes = any(name in self.code.src for name in ("grad_mode", "begin_autocast"))
        self.function = restoring(function) if modes else function

    def __call__(self, *args: Any) -> Any:
        try:
            return self.function(*args)
        except Exception as error:
            raise self.explained(error)  # noqa: B904

    def explained(self, error: Exception) -> Exception:
        """What is raised in the place of an error of the function."""
        return explained(error, self.code, self.filename)


def copied_value(value: Any) -> Any:
    """A list or dict of a module as one of the program's own; tensors in it stay the same."""
    if isinstance(value, list):
        return [copied_value(item) for item in value]
    if isinstance(value, dict):
        return {key: copied_value(item) for key, item in value.items()}
    return value


def plain_attributes(module: Module) -> list[str]:
    """The attributes of a scripted module that belong to it, in its files and copies too.

    Those that its graphs use, and all others of types that a program can have.
    """
    from coredispatch.frontend.jit.compiler.attributes import holds

    state = module.__dict__
    used = state.get("_attribute_types", {})
    members = {**module._parameters, **module._buffers, **module._modules}
    return [
        name
        for name, value in state.items()
        if name not in members
        and (
            name in used
            or name.isidentifier()
            and name[0] != "_"
            and name not in NO_STATE
            and holds(value)
        )
    ]


#: what of a module is not its own state
NO_STATE = frozenset(
    "_graph _function _signature _methods _attribute_types original_name training _hooks forward "
    "_parameter_names _buffer_names _module_names _uncompiled".split()
)


class GraphMethod:
    """A graph as a function of a module and the arguments of a call."""

    def __init__(self, graph: Graph, name: str, owner: str) -> None:
        compiled = Compiled(graph, owner if name == "forward" else f"{owner}.{name}")
        bound, function = Signature(graph, name), compiled.function

        def run(module: Any, *args: Any, **kwargs: Any) -> Any:
            given = bound(args, kwargs)
            recorder = recorder_of_scripts()
            if recorder is not None:
                return call_traced(recorder, lambda *a: compiled(module, *a), graph, module, given)
            try:
                return function(module, *given)
            except Exception as error:
                raise compiled.explained(error)  # noqa: B904

        run.__name__ = name
        run.__signature__ = bound.python("self")  # type: ignore[attr-defined]
        self.run, self.signature = run, bound


class ConstMap:
    """The constants of a program: as attributes, and by name in ``const_mapping``."""

    def __init__(self, const_mapping: dict[str, Any]) -> None:
        self.const_mapping = const_mapping

    def __getattr__(self, attr: str) -> Any:
        found = self.__dict__.get("const_mapping", {})
        if attr not in found:
            raise AttributeError(
                f"there is no constant {attr!r}; there are {', '.join(found) or 'none'}"
            )
        return found[attr]


class ScriptModule(Module):
    """A module with parameters and submodules whose ``forward`` is a graph, and no Python class.

    A class may be derived from it: methods marked with :func:`coredispatch.jit.script_method` are
    compiled when its ``__init__`` has run, and submodules become scripted ones.

    Attributes:
        graph: the graph of ``forward``; calls of submodules are single nodes.
        original_name: the name of the class that the module was made from.
    """

    def __init__(self, original_name: str | None = None, graph: Graph | None = None) -> None:
        super().__init__()
        state = self.__dict__
        original_name = original_name or type(self).__name__
        state["original_name"] = original_name
        state["_graph"] = state["_function"] = state["_signature"] = None
        state["_methods"] = {}
        if graph is not None:
            self._set_method("forward", graph)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if of_library(cls):
            return
        original = cls.__init__

        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if type(self) is cls:
                from coredispatch.frontend.jit.compiler.modules import compile_in_place

                compile_in_place(self)

        cls.__init__ = init  # type: ignore[method-assign]

    def _set_method(self, name: str, graph: Graph) -> None:
        """Give the module a method that runs ``graph``."""
        method = GraphMethod(graph, name, self.original_name)
        graph.owning_module = self
        state = self.__dict__
        if name == "forward":
            state["_graph"], state["_function"] = graph, method.run
            state["_signature"] = method.signature
            state["forward"] = method.run.__get__(self)
        else:
            state["_methods"][name] = graph
            state[name] = method.run.__get__(self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph; a module that has one has it as a method of its own."""
        raise OpError(
            f"{self.original_name!r} has no graph of its own: it has no forward, or was never "
            "called as a whole in the trace",
            fix="call the module that it is part of",
        )

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
    def code_with_constants(self) -> tuple[str, ConstMap]:
        """:attr:`code`, and the tensors that it reads as constants of the program, by name."""
        names = [str(node.target) for node in self.graph.find_nodes(op="get_attr")]
        constants = {n: getattr(self, n) for n in names if n.startswith("_tensor_constant")}
        return self.code, ConstMap(constants)

    @property
    def inlined_graph(self) -> Graph:
        """The graph with the graphs of the submodules in place of their calls.

        Modules of coredispatch are written out for the mode (training or not) that they are in.
        """
        from coredispatch.frontend.jit.freezing import graph_of
        from coredispatch.graph.passes.inlining import inline_modules

        return inline_modules(self.graph, graph_of)

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
        from coredispatch.frontend.jit.saving import write

        write(self, f, _extra_files)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _copied(self, memo)

    def __reduce__(self) -> Any:
        import io

        from coredispatch.frontend.jit.saving import write

        buffer = io.BytesIO()
        write(self, buffer)
        return _loaded, (buffer.getvalue(),)

    def _get_name(self) -> str:
        return str(self.original_name)

    def extra_repr(self) -> str:
        """The class that the module was made from."""
        return f"original_name={self.original_name}"


class RecursiveScriptModule(ScriptModule):
    """A module that was loaded, or compiled from source."""

    def _get_name(self) -> str:
        return "RecursiveScriptModule"


class LibraryScriptModule(RecursiveScriptModule):
    """A module of this package as part of a scripted one: its class's ``forward`` runs."""

    @property
    def graph(self) -> Graph:
        """The graph of ``forward``, where it can be compiled."""
        from coredispatch.frontend.jit.compiler.modules import library_graph

        graph = library_graph(self)
        if graph is None:
            raise OpError(
                f"{self.original_name!r} is called as a whole and has no graph: its forward is "
                "Python code of coredispatch",
                fix="trace it: jit.trace(module, example).graph",
            )
        made: Graph = graph
        return made


_LIBRARY: dict[type, Any] = {}


def library_class(cls: type) -> Any:
    """The class of scripted modules that run ``cls.forward``."""
    if cls not in _LIBRARY:
        members = {"forward": cls.forward, "__module__": __name__}  # type: ignore[attr-defined]
        members["__reduce__"] = ScriptModule.__reduce__
        _LIBRARY[cls] = type(cls.__name__, (LibraryScriptModule, cls), members)
        _LIBRARY[cls]._library = cls
    return _LIBRARY[cls]


class TopLevelTracedModule(ScriptModule):
    """What ``jit.trace`` makes of a module. Parameters and buffers are the module's own."""


class ScriptFunction(Generic[_P, _R]):
    """A function whose code is a graph.

    Attributes:
        graph, code: the graph, and it as Python text.
        name: the name of the function that was traced.
    """

    _original: Any = None  # the Python function, of one that was scripted

    def __init__(self, graph: Graph, name: str, constants: Module) -> None:
        self.graph, self.name, self._constants = graph, name, constants
        self.__name__ = name
        self._function = Compiled(graph, name)
        self._signature = Signature(graph, name)
        self.__signature__ = self._signature.python()
        graph.owning_module = constants

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = self._signature(args, kwargs)
        recorder = recorder_of_scripts()
        if recorder is None:
            return cast(_R, self._function(self._constants, *given))
        return cast(_R, call_traced(recorder, self._run, self.graph, self._constants, given))

    def _run(self, *args: Any) -> Any:
        return self._function(self._constants, *args)

    @property
    def inlined_graph(self) -> Graph:
        """The graph: what a function calls is part of it anyway."""
        return self.graph

    @property
    def code(self) -> str:
        """The graph as Python text."""
        return self.graph.code

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the function to a file; see :func:`coredispatch.jit.save`."""
        from coredispatch.frontend.jit.saving import write

        write(self, f, _extra_files)

    def __repr__(self) -> str:
        return f"<coredispatch.jit.ScriptFunction {self.name!r}>"


class CompilationUnit:
    """Functions compiled from a text.

    Example:
        >>> unit = cd.jit.CompilationUnit("def double(x):\n    return x * 2")  # doctest: +SKIP
        >>> unit.double(cd.ones(2))  # doctest: +SKIP
    """

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, ScriptFunction[..., Any]] = {}
        if lang is not None:
            self.define(lang)

    def define(self, lang: str) -> CompilationUnit:
        """Compile the functions of a text; later ones may call earlier ones."""
        from coredispatch.frontend.jit.scripting import script_text

        self._functions.update(script_text(lang, self._functions))
        return self

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("_functions", {}).get(name)
        if found is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{name}'")
        return found


def export_opnames(m: Any) -> list[str]:
    """The names of the operators that a program calls, with its submodules, sorted."""
    from coredispatch.graph.targets import operator_names

    graphs = [m.graph] if isinstance(m, ScriptFunction) else []
    if isinstance(m, ScriptModule):
        for module in m.modules():
            own = getattr(module, "_graph", None)
            graphs += [graph for graph in (own, *getattr(module, "_methods", {}).values()) if graph]
            graphs += [hook.graph for kind in HOOKS for hook in script_hooks(module, kind)]
            if isinstance(module, LibraryScriptModule) or own is None:
                from coredispatch.frontend.jit.freezing import graph_of

                found = graph_of(module)
                graphs += [] if found is None else [found]
    return sorted({name for graph in graphs for name in operator_names(graph)})


def _loaded(data: bytes) -> Any:
    import io

    from coredispatch.frontend.jit.saving import read

    return read(io.BytesIO(data))


def _copied(module: ScriptModule, memo: dict[int, Any]) -> ScriptModule:
    """A deep copy: tensors and submodules are copied, graphs are compiled anew."""
    import copy

    known: ScriptModule | None = memo.get(id(module))
    if known is not None:
        return known
    if isinstance(module, LibraryScriptModule):
        twin: ScriptModule = type(module).__new__(type(module))
        memo[id(module)] = twin
        twin.__dict__.update(copy.deepcopy({**module.__dict__, "_hooks": None}, memo))
        copy_hooks(module, twin)
        return twin
    cls: Any = type(module)
    made: ScriptModule = RecursiveScriptModule.__new__(cls)
    ScriptModule.__init__(made, module.original_name)
    memo[id(module)] = made
    for name, graph in (("forward", module._graph), *module._methods.items()):
        if graph is not None:
            made._set_method(name, graph.copy())
    if "_attribute_types" in module.__dict__:
        made.__dict__["_attribute_types"] = dict(module.__dict__["_attribute_types"])
    for name in plain_attributes(module):
        made.__dict__[name] = copy.deepcopy(module.__dict__[name], memo)
    for name, parameter in module._parameters.items():
        made.register_parameter(name, copy.deepcopy(parameter, memo))
    for name, persistent in buffers_of(module).items():
        made.register_buffer(name, copy.deepcopy(module._buffers[name], memo), persistent)
    for name, child in module._modules.items():
        made.add_module(name, copy.deepcopy(child, memo))
    made.training = module.training
    copy_hooks(module, made)
    return made
