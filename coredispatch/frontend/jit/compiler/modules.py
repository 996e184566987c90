"""Modules, compiled: each becomes a module of graphs that shares its parameters."""

from __future__ import annotations

import inspect
from typing import Any

from coredispatch.frontend.jit.compiler.annotations import annotation_type
from coredispatch.frontend.jit.compiler.attributes import constant_names, declared_types, holds
from coredispatch.frontend.jit.compiler.hooks import compile_hooks, with_hooks
from coredispatch.frontend.jit.compiler.programs import (
    Program,
    compile_function,
    compile_sequential,
)
from coredispatch.frontend.jit.compiler.types import ANY, TENSOR, Type, optional, tuple_of
from coredispatch.frontend.jit.compiler.values import ModuleRef
from coredispatch.frontend.jit.frontend import NotSupportedError
from coredispatch.frontend.jit.markers import Attribute
from coredispatch.frontend.jit.module_hooks import attach, script_hooks
from coredispatch.frontend.jit.overloads import declarations
from coredispatch.frontend.jit.script_module import (
    LibraryScriptModule,
    RecursiveScriptModule,
    ScriptModule,
    copied_value,
    library_class,
)
from coredispatch.frontend.nn.module import Module, buffers_of
from coredispatch.frontend.nn.modules.container import (
    ModuleDict,
    ModuleList,
    ParameterDict,
    ParameterList,
    Sequential,
)
from coredispatch.frontend.ownership import of_library
from coredispatch.plugin import OpError

__all__ = ["compile_in_place", "is_library", "library_graph", "result_type", "script_module"]

_CONTAINERS = (ModuleList, ModuleDict, ParameterList, ParameterDict)
#: library modules that give more than a tensor
_RESULTS: dict[str, Type] = {
    "LSTM": tuple_of(TENSOR, tuple_of(TENSOR, TENSOR)),
    "GRU": tuple_of(TENSOR, TENSOR),
    "RNN": tuple_of(TENSOR, TENSOR),
    "LSTMCell": tuple_of(TENSOR, TENSOR),
    "MultiheadAttention": tuple_of(TENSOR, optional(TENSOR)),
    "AdaptiveLogSoftmaxWithLoss": ANY,
}


def is_library(module: Module) -> bool:
    """Whether the class of a module is part of this package, and is called, not compiled."""
    cls = type(module)
    if isinstance(module, (*_CONTAINERS, ScriptModule)) or cls.forward is Sequential.forward:
        return False
    if hasattr(cls, "_generated_from"):  # a GraphModule: its forward is the user's program
        return False
    return of_library(cls)


#: the hooks that a call runs: they are compiled; those of state dicts stay Python
_CALLED = ("forward_pre", "forward", "options")


def result_type(module: Any) -> Type:
    """The type of what calling a module gives."""
    made = _SCRIPTED.get(id(module), module)
    kind = _forward_type(module)
    for hook in script_hooks(made, "forward"):
        kind = with_hooks(kind, hook.graph)
    return kind


def _forward_type(module: Any) -> Type:
    made = _SCRIPTED.get(id(module))
    if made is None and isinstance(module, ScriptModule):
        made = module
    if made is not None and getattr(made, "_graph", None) is not None:
        last = made._graph.output_node()
        kind: Type = ANY if last is None else last.meta.get("type", ANY)
        return kind
    if not is_library(module):
        return ANY
    if getattr(module, "return_indices", False):
        return ANY
    return _RESULTS.get(type(module).__name__, TENSOR)


#: while modules are compiled: id of the module -> what it becomes
_SCRIPTED: dict[int, Any] = {}


def script_module(module: Module) -> Any:
    """``module`` compiled with all its submodules. Parameters and buffers are shared."""
    outermost = not _SCRIPTED
    try:
        return _scripted(module)
    finally:
        if outermost:
            _SCRIPTED.clear()


def _scripted(module: Module) -> Any:
    known = _SCRIPTED.get(id(module))
    if known is not None:
        return known
    if isinstance(module, ScriptModule):
        return module
    if is_library(module):
        made = _SCRIPTED[id(module)] = library_copy(module)
        return made
    made = RecursiveScriptModule(type(module).__name__)
    _share(module, made)
    for name, child in module._modules.items():
        made.add_module(name, None if child is None else _scripted(child))
    _SCRIPTED[id(module)] = made
    _attributes(module, made)
    for name, fn, told in _methods(module):
        program = _compiled(module, name, fn, told)
        for path, tensor in program.adopted.items():
            made.register_buffer(path, tensor, persistent=False)
        _keep(program, module, made)
        made._set_method(name, program.block.graph)
    _hooks(module, made)
    _python_members(module, made)
    return made


def compile_in_place(module: Any) -> None:
    """Compile the methods of a module whose class is derived from ``ScriptModule``."""
    for name, child in list(module._modules.items()):
        if child is not None:
            setattr(module, name, script_module(child))
    cls = type(module)
    marked = {n: v for n, v in vars(module).items() if isinstance(v, Attribute)}
    for name in dir(cls):
        fn = inspect.getattr_static(cls, name, None)
        if getattr(fn, "_script_method", False):
            program = _compiled(module, name, fn)
            _keep(program, module, module)
            module._set_method(name, program.block.graph)
    # While the methods were compiled, each said what type the attribute has.
    for name, attribute in marked.items():
        vars(module)[name] = attribute.value
        module.__dict__.setdefault("_attribute_types", {}).setdefault(
            name, annotation_type(attribute.type)
        )


def _compiled(module: Module, name: str, fn: Any, told: Any = None) -> Program:
    ref = ModuleRef("", module)
    if name == "forward" and type(module).forward is Sequential.forward:
        return compile_sequential(module)
    return compile_function(fn, ref, owner=type(module), told=told)


def library_copy(module: Module) -> Any:
    """A module of this package as a scripted one: its own members, its class's ``forward``."""
    made = library_class(type(module)).__new__(library_class(type(module)))
    state = dict(vars(module))
    for table in ("_parameter_names", "_buffer_names", "_module_names"):
        state[table] = dict(state[table])
    made.__dict__.update(state)
    made.__dict__.update(
        original_name=type(module).__name__, _graph=None, _function=None, _methods={}
    )
    for name, child in module._modules.items():
        made.__dict__[name] = None if child is None else _scripted(child)
    if made._hooks is not None:
        state["_hooks"] = made.__dict__["_hooks"] = {
            kind: entries for kind, entries in made._hooks.items() if kind not in _CALLED
        }
        _hooks(module, made)
    return made


def library_graph(module: Module) -> Any:
    """The graph of a module of this package, None where its ``forward`` is not compiled.

    It serves those who look at graphs, and holds for the mode (training or not) that the module is
    in; calls of the module run its class's ``forward``.
    """
    if not is_library(module) and not isinstance(module, LibraryScriptModule):
        return None
    try:
        program = compile_function(
            type(module).forward, ModuleRef("", module), owner=type(module), library=True
        )
    except (OpError, NotSupportedError, OSError):
        return None
    graph = program.block.graph
    graph.owning_module = module
    return graph


def _share(module: Module, made: Any) -> None:
    for name, parameter in module._parameters.items():
        made.register_parameter(name, parameter)
    for name, persistent in buffers_of(module).items():
        made.register_buffer(name, module._buffers[name], persistent)
    made.training = module.training


def _hooks(module: Module, made: Any) -> None:
    """Compile the hooks of ``module`` for ``made``."""
    if not module._hooks:
        return
    graph = made.__dict__.get("_graph")
    inputs, output = None, ANY
    if graph is not None:
        inputs = [place.meta.get("type", ANY) for place in graph.placeholders]
        output = graph.output_node().meta.get("type", ANY)
    for kind, name, program in compile_hooks(module, inputs, output):
        _keep(program, module, made)
        attach(made, kind, program.block.graph, name)


def _attributes(module: Module, made: Any) -> None:
    """Plain attributes that a program can have; constants are part of the graphs."""
    declared = declared_types(type(module))
    constants = {  # those of the class too
        name: getattr(module, name)
        for name in constant_names(type(module))
        if hasattr(module, name)
    }
    for name, value in {**constants, **vars(module)}.items():
        if name.startswith("_") and name not in declared or name in ("training",):
            continue
        if name in module._parameters or name in module._buffers or name in module._modules:
            continue
        if isinstance(value, Attribute):
            value = value.value
        if holds(value):
            made.__dict__[name] = copied_value(value)


def _keep(program: Program, module: Module, made: Any) -> None:
    """Note the attributes that the graphs use: those are saved."""
    for (path, name), kind in program.attributes.items():
        at, source = made, module
        for part in filter(None, path.split(".")):
            at, source = at._modules[part], source._modules[part]
        if name not in at.__dict__:
            value = vars(source)[name]
            value = value.value if isinstance(value, Attribute) else value
            at.__dict__[name] = copied_value(value)
        at.__dict__.setdefault("_attribute_types", {})[name] = kind


def _methods(module: Module) -> list[tuple[str, Any, Any]]:
    """``forward``, where the class defines it, and the exported methods; and of which overload.

    Overloads are methods of their own: ``forward__0``, ``forward__1``.
    """
    cls = type(module)
    found: dict[str, Any] = {}
    forward = getattr(cls, "forward", None)
    if forward is not Module.forward and forward is not ScriptModule.forward:
        if getattr(forward, "_torchscript_modifier", None) not in ("ignore", "unused"):
            found["forward"] = forward
    for name in dir(cls):
        fn = inspect.getattr_static(cls, name, None)
        if getattr(fn, "_torchscript_modifier", None) == "export":
            found[name] = fn
    methods: list[tuple[str, Any, Any]] = []
    for name, fn in found.items():
        overloads = declarations(inspect.unwrap(fn))
        methods += [(f"{name}__{i}", fn, told) for i, told in enumerate(overloads)]
        methods += [] if overloads else [(name, fn, None)]
    return methods


def _python_members(module: Module, made: Any) -> None:
    """Ignored methods stay methods, as Python."""
    cls = type(module)
    for name in dir(cls):
        fn = inspect.getattr_static(cls, name, None)
        if getattr(fn, "_torchscript_modifier", None) in ("ignore", "unused"):
            made.__dict__.setdefault(name, fn.__get__(made))
