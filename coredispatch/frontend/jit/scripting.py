"""``jit.script``: the source of a module, function or class as graphs."""

from __future__ import annotations

import enum
import inspect
import itertools
import linecache
import math
import textwrap
import typing
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from coredispatch._frames import program_frame
from coredispatch._warnings import warn_of_jit
from coredispatch.frontend.jit.compiler.programs import compile_function
from coredispatch.frontend.jit.compiler.source import CompileError
from coredispatch.frontend.jit.overloads import refuse_alone
from coredispatch.frontend.jit.script_module import RecursiveScriptModule, ScriptFunction
from coredispatch.frontend.nn.module import Module

__all__ = ["script", "script_method", "script_text"]

_C = TypeVar("_C")
_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def script(  # type: ignore[overload-overlap]  # a module is called as well
    obj: Module,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> RecursiveScriptModule: ...
@overload
def script(  # type: ignore[overload-overlap]  # so is a class
    obj: type[_C],
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> type[_C]: ...
@overload
def script(
    obj: Callable[_P, _R],
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> ScriptFunction[_P, _R]: ...
def script(
    obj: Any,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:
    """Compile the source of ``obj`` to graphs.

    Args:
        obj: a module (compiled with its submodules; parameters and buffers are shared), a
            function, or a class (which then may be used in compiled programs). Parameters without
            an annotation are tensors.

    What is compiled keeps its control flow, is trained like the original, and is written by
    :func:`save` to a file that needs no Python class. Numbers keep Python's arithmetic.

    Raises :class:`coredispatch.jit.frontend.NotSupportedError` for what is not compiled and a
    ``RuntimeError`` for what has no meaning; both show the line and a caret.

    Example:
        >>> @cd.jit.script
        ... def clamp(x, low: float, high: float):
        ...     if low > high:
        ...         low, high = high, low
        ...     return x.clamp(low, high)  # doctest: +SKIP
    """
    warn_of_jit("script", "switch to `torch.compile` or `torch.export`")
    if isinstance(obj, ScriptFunction):
        return obj
    if isinstance(obj, Module):
        from coredispatch.frontend.jit.compiler.modules import script_module

        return script_module(obj)
    if inspect.isclass(obj):
        return _script_class(obj)
    if isinstance(obj, (dict, list)):
        return obj
    fn = inspect.unwrap(obj) if callable(obj) else None
    if inspect.ismethod(fn):
        raise CompileError(
            "jit.script does not take bound methods",
            fix="script the module, and mark the method with @jit.export",
        )
    if not inspect.isfunction(fn):
        raise CompileError(
            f"Could not get name of python class or function of {type(obj).__name__}: jit.script "
            "takes modules, functions and classes"
        )
    return _script_function(fn)


def _script_function(fn: Any) -> ScriptFunction[..., Any]:
    refuse_alone(fn)
    program = compile_function(fn)
    constants = Module()
    for name, tensor in program.adopted.items():
        constants.register_buffer(name, tensor)
    made: ScriptFunction[..., Any] = ScriptFunction(program.block.graph, fn.__name__, constants)
    made._original = fn
    made.__doc__ = fn.__doc__
    return made


def script_text(
    text: str, known: dict[str, ScriptFunction[..., Any]]
) -> dict[str, ScriptFunction[..., Any]]:
    """The functions that a text defines, compiled; it may use those in ``known``."""
    import ast

    import coredispatch

    text = textwrap.dedent(text)
    tree = ast.parse(text)
    if not all(isinstance(node, ast.FunctionDef) for node in tree.body):
        raise CompileError("a CompilationUnit takes definitions of functions only")
    name = f"<coredispatch text {next(_TEXTS)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {
        "torch": coredispatch,
        "cd": coredispatch,
        "Tensor": coredispatch.Tensor,
        "math": math,
        **vars(typing),
        **known,
    }
    exec(compile(tree, name, "exec"), names)
    made: dict[str, ScriptFunction[..., Any]] = {}
    for node in tree.body:
        assert isinstance(node, ast.FunctionDef)
        made[node.name] = names[node.name] = _script_function(names[node.name])
    return made


_TEXTS = itertools.count(1)


#: the flag of classes that are written in Python (CPython's Py_TPFLAGS_HEAPTYPE)
_HEAP_TYPE = 1 << 9


def _script_class(cls: Any) -> Any:
    if issubclass(cls, Module):
        raise CompileError(
            f"Type '{cls.__name__}' cannot be compiled since it inherits from nn.Module, consider "
            "passing an instance instead"
        )
    if issubclass(cls, (tuple, enum.Enum)):
        return cls
    if not cls.__flags__ & _HEAP_TYPE:
        raise CompileError(
            f"Python's own class {cls.__name__!r} cannot be compiled",
            fix="write a class in Python, which inherits from object alone",
        )
    bases = [base for base in cls.__mro__ if base not in (cls, object)]
    if bases:
        raise CompileError(
            "Currently does not support inheritance: "
            f"{cls.__name__} inherits from {bases[0].__name__}"
        )
    cls.__torch_script_class__ = True
    frame = program_frame()
    if frame is not None and frame.f_locals is not frame.f_globals:
        cls._script_names = {n: v for n, v in frame.f_locals.items() if isinstance(v, type)}
    return cls


def script_method(fn: Any) -> Any:
    """Mark a method of a :class:`ScriptModule` subclass: it is compiled when ``__init__`` ends."""
    warn_of_jit("script_method", "switch to `torch.compile` or `torch.export`")
    fn._script_method = True
    return fn
