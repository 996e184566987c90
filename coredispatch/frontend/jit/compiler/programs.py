"""Functions and methods, compiled: one graph each."""

from __future__ import annotations

import inspect
from typing import Any

from coredispatch.frontend.jit.compiler.annotations import names_for
from coredispatch.frontend.jit.compiler.attributes import holds
from coredispatch.frontend.jit.compiler.builtins import Builtins
from coredispatch.frontend.jit.compiler.calls import check_parameters, declared_types_of
from coredispatch.frontend.jit.compiler.source import source_of
from coredispatch.frontend.jit.compiler.types import ANY, TENSOR, Type
from coredispatch.frontend.jit.compiler.values import Block, Frame, ModuleRef, Val
from coredispatch.graph import Graph, map_arg

__all__ = ["Program", "compile_function", "compile_sequential", "parameter_values"]


class Program(Builtins):
    """One graph in the making.

    Attributes:
        attributes: what the program reads and writes of its modules besides tensors:
            ``(path, name) -> type``.
        adopted: tensors of traced functions that it calls, by the name of the attribute.
    """

    def __init__(self, fn: Any, owner: Any = None) -> None:
        fn = inspect.unwrap(fn)
        source = source_of(fn)
        self.block = Block()
        self.frame = Frame(source, names_for(fn, owner), {}, fn, None, {}, None)
        self.at = source.tree
        self.hint: Type | None = None
        self.stack: list[Any] = []
        self.attributes: dict[tuple[str, str], Type] = {}
        self.adopted: dict[str, Any] = {}
        self.library = False

    def own(self, ref: ModuleRef, name: str, kind: Type) -> None:
        """Note that the program uses a plain attribute of a module."""
        self.attributes[ref.path, name] = kind

    def module_type(self, module: Any) -> Type:
        """The type of what calling a module gives."""
        from coredispatch.frontend.jit.compiler.modules import result_type

        return result_type(module)

    def adopt(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call of a traced or loaded function: its nodes, its constants as buffers."""
        prefix = f"_adopted{len(self.adopted)}_"
        for name, tensor in (*fn._constants.named_parameters(), *fn._constants.named_buffers()):
            self.adopted[prefix + name] = tensor
        graph = fn.graph.copy()
        for node in graph.nodes:
            if node.op == "get_attr":
                node.target = prefix + node.target
        return self.paste(graph, ModuleRef("", None), args, kwargs)


def parameter_values(
    program: Program, fn: Any, skip: int, told: Any = None, owner: Any = None
) -> list[Val]:
    """Inputs of the graph for the parameters of ``fn`` behind the first ``skip``.

    ``told``: the overload whose annotations hold. ``owner``: the class whose method it is.
    """
    source = source_of(fn)
    check_parameters(fn, source)
    kinds, _, own = declared_types_of(told or fn, owner)
    found = []
    for name, parameter in list(inspect.signature(fn).parameters.items())[skip:]:
        kind = kinds.get(name, TENSOR)
        default = parameter.default
        node = program.block.place(name)
        node.target = name
        node.type = str(kind) if name in own or kind != TENSOR else "Tensor"
        node.meta["type"] = kind
        node.meta["inferred"] = name not in own
        if default is not inspect.Parameter.empty:
            if not holds(default):
                raise source.error(
                    source.tree, f"the default of {name!r} is a {type(default).__name__}"
                )
            node.args = (default,)
        found.append(Val(node, kind))
    return found


def compile_function(
    fn: Any,
    ref: ModuleRef | None = None,
    owner: Any = None,
    library: bool = False,
    told: Any = None,
) -> Program:
    """The program of a function, or of a method of a module.

    ``library``: the module is part of this package, and its options are constants. ``told``: the
    overload that is compiled.
    """
    fn = inspect.unwrap(fn)
    program = Program(fn, owner)
    program.library = library
    values = parameter_values(program, fn, 0 if ref is None else 1, told, owner)
    given = [*([] if ref is None else [ref]), *values]
    only = inspect.Parameter.KEYWORD_ONLY
    named = {
        name: value
        for (name, parameter), value in zip(inspect.signature(fn).parameters.items(), given)
        if parameter.kind is only
    }
    places = given[: len(given) - len(named)]
    result = program.inline(fn, places, named, owner=owner, told=told)
    return _finished(program, result)


def compile_sequential(module: Any) -> Program:
    """The program of ``Sequential.forward``."""
    from coredispatch.frontend.nn.modules.container import Sequential

    program = Program(Sequential.forward)
    node = program.block.place("input")
    node.target = "input"
    node.type, node.meta["type"], node.meta["inferred"] = None, ANY, True
    children = list(module._modules)
    value: Any = Val(node, ANY)
    if children:
        value = program.run_sequential(ModuleRef("", module), value)
    return _finished(program, value)


def _finished(program: Program, result: Any) -> Program:
    graph = program.block.graph
    result = program.plain(result)
    output = graph.output(map_arg(program.arg_of(result), program.block.local))
    kind = program.type_of(result)
    output.meta["type"] = kind
    output.type = None if kind == ANY else str(kind)
    clean(graph)
    graph.lint()
    return program


def clean(graph: Graph) -> None:
    """Remove what compiling wrote and nobody uses. What the program says stays: it may fail."""
    for node in reversed(graph.nodes):
        for inner in node.graphs:
            clean(inner)
        if not node.users and (node.op == "get_attr" or node.meta.get("compiler")):
            graph.erase_node(node)
