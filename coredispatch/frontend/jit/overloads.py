"""Functions and methods with several signatures and one body, of which calls pick one."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from coredispatch.frontend.jit.compiler.source import Source, source_of
from coredispatch.plugin import OpError

__all__ = [
    "_overload",
    "_overload_method",
    "check_defaults",
    "declarations",
    "is_overloaded",
    "refuse_alone",
]

_F = TypeVar("_F", bound=Callable[..., Any])

#: the declarations of a name, each under the line where it stands
_DECLARED: dict[tuple[str, str], dict[int, Any]] = {}

_EXAMPLE = """write one definition behind all declarations, for example

    @torch.jit._overload
    def double(x: int) -> int: ...

    @torch.jit._overload
    def double(x: Tensor) -> Tensor: ...

    def double(x):
        return x * 2
"""


def _overload(func: _F) -> _F:
    """Declare one of several signatures of the function that is defined below under the same name.

    The body of a declaration is ``pass`` or ``...``. A compiled program that calls the function
    gets its body compiled for the first signature that takes the arguments.
    """
    try:
        source = source_of(func)
    except OSError:  # of a REPL or generated code: annotations say enough
        source = None
    if source is not None:
        _check_body(source)
    known = _DECLARED.setdefault((func.__module__, func.__qualname__), {})
    known[func.__code__.co_firstlineno] = func
    return func


def _overload_method(func: _F) -> _F:
    """:func:`_overload` of a method of a module."""
    return _overload(func)


def declarations(fn: Any) -> list[Any]:
    """The declared signatures of a function, in order; those of another file or below it are not.

    Raises ``RuntimeError`` where ``fn`` is itself a declaration: there is no body.
    """
    found = _DECLARED.get((fn.__module__, fn.__qualname__))
    if not found:
        return []
    line = fn.__code__.co_firstlineno
    known = found.get(line)
    if known is not None and known.__code__ is fn.__code__:
        raise OpError(
            f'Implementation for the function "{fn.__qualname__}" is missing. Please make sure a '
            "definition is provided and defined after all overload declarations.",
            fix=_EXAMPLE,
        )
    file = fn.__code__.co_filename
    return [one for at, one in found.items() if at < line and one.__code__.co_filename == file]


def is_overloaded(cls: type) -> bool:
    """Whether ``forward`` of a class of modules has several signatures."""
    fn = getattr(cls, "forward", None)
    return inspect.isfunction(fn) and bool(declarations(inspect.unwrap(fn)))


def refuse_alone(fn: Any) -> None:
    """An overloaded function has no graph of its own: arguments decide which one it is."""
    if declarations(fn):
        raise OpError(
            f"Function {fn.__qualname__} cannot be directly compiled because it is overloaded. It "
            "must be used in a context of a function where its inputs can determine which overload "
            "to call.",
            fix="script a function that calls it",
        )


def check_defaults(declared: Any, fn: Any) -> None:
    """Defaults of a declaration, where it has some, are those of the definition."""
    own = inspect.signature(fn).parameters
    for name, parameter in inspect.signature(declared).parameters.items():
        default = parameter.default
        if default is not inspect.Parameter.empty and default != own[name].default:
            source = source_of(declared)
            raise source.error(
                source.tree,
                "Default parameters on overloads do not affect the runtime so they must equal to "
                "the default parameter on the implementation function. Found on parameter "
                f"{name}",
            )


def _check_body(source: Source) -> None:
    statements = source.tree.body
    if isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
        if isinstance(statements[0].value.value, str):
            statements = statements[1:]
    for one in statements:
        empty = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        if not (isinstance(one, ast.Pass) or empty and one.value.value is ...):  # type: ignore[attr-defined]
            raise source.error(
                one,
                "Only `pass` statement or `...` can be the body of overload declaration",
                fix=_EXAMPLE,
            )
