"""Annotations as types; types as text, and back without evaluating anything."""

from __future__ import annotations

import ast
import enum
import inspect
import re
import types as python_types
import typing
from typing import Any

from coredispatch.frontend.futures import Future
from coredispatch.frontend.jit.compiler.source import CompileError
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    COMPLEX,
    DEVICE,
    DTYPE,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    STR,
    TENSOR,
    Type,
    dictionary,
    future,
    list_of,
    optional,
    tuple_of,
    union,
)
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.ownership import of_library
from coredispatch.frontend.tensor import Tensor
from coredispatch.plugin import Device, DType

__all__ = ["annotation_type", "names_for", "type_of_value"]

_PLAIN: dict[Any, Type] = {
    int: INT,
    float: FLOAT,
    bool: BOOL,
    str: STR,
    complex: COMPLEX,
    None: NONE,
    type(None): NONE,
    DType: DTYPE,
    Device: DEVICE,
    list: list_of(TENSOR),
    dict: ANY,
    tuple: ANY,
}


def annotation_type(annotation: Any) -> Type:
    """The type that an evaluated annotation means. Raises :class:`CompileError` for others."""
    try:
        found = _PLAIN.get(annotation)
    except TypeError:
        found = None
    if found is not None:
        return found
    if annotation is Any or annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return ANY
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is not None:
        return _generic(annotation, origin, inner)
    if isinstance(annotation, type):
        return _class(annotation)
    if isinstance(annotation, (python_types.UnionType,)):
        return union(tuple(map(annotation_type, inner)))
    if annotation in (typing.List, typing.Dict, typing.Tuple, typing.Optional):  # noqa: UP006
        raise CompileError(
            f"Unknown type name '{annotation}'", fix="say what is in it, as in List[int]"
        )
    return ANY


def _generic(annotation: Any, origin: Any, inner: tuple[Any, ...]) -> Type:
    if origin is typing.Union or origin is python_types.UnionType:
        return union(tuple(map(annotation_type, inner)))
    if origin is tuple:
        if inner == ((),):
            return tuple_of()
        if len(inner) == 2 and inner[1] is ...:
            return list_of(annotation_type(inner[0]))
        return tuple_of(*map(annotation_type, inner))
    parts = tuple(map(annotation_type, inner))
    if not parts and origin in (list, dict):
        name = origin.__name__.capitalize()
        raise CompileError(
            f"Attempted to use {name} without a contained type. Please add a contained type, e.g. "
            f"{name}[{'int' if origin is list else 'str, int'}]"
        )
    if origin is list:
        return list_of(*parts)
    if origin is dict:
        return dictionary(*parts)
    if origin is Future or getattr(origin, "__name__", "") == "Future":
        return future(*parts)
    if origin is typing.Final:
        return parts[0]
    if origin is typing.Annotated:
        return parts[0]
    return ANY


def _class(cls: type) -> Type:
    if issubclass(cls, Tensor):
        return TENSOR
    if issubclass(cls, enum.Enum):
        return Type("Enum", python=cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return named_tuple(cls)
    if issubclass(cls, Module):
        return Type("Module", python=cls)
    if of_library(cls) or cls.__module__ == "builtins":
        return ANY
    if issubclass(cls, Future):
        return future(ANY)
    return Type("Class", python=cls)


def named_tuple(cls: Any) -> Type:
    """The type of a named tuple class; fields without annotation are tensors."""
    hints = _hints(cls)
    fields = tuple(cls._fields)
    parts = tuple(annotation_type(hints[f]) if f in hints else TENSOR for f in fields)
    return Type("NamedTuple", parts, fields, cls)


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except Exception:  # names that are gone: the values say it at run time
        return dict.fromkeys(getattr(cls, "__annotations__", {}), Any)


def names_for(fn: Any, owner: Any = None) -> dict[str, Any]:
    """The names that annotations of ``fn`` may use: its globals and closure.

    ``owner``: the class whose method it is. An annotation makes no closure, so the class brings its
    own name, and those of the classes that were there where it was scripted.
    """
    fn = inspect.unwrap(fn)
    closure = fn.__closure__ or ()
    cells = {}
    for name, cell in zip(fn.__code__.co_freevars, closure):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    own: dict[str, Any] = {}
    if isinstance(owner, type):
        own = {**vars(owner).get("_script_names", {}), owner.__name__: owner}
        if fn.__globals__.get(owner.__qualname__) is not None:
            own = {}  # a class of the module has the name
    return {**vars(typing), **fn.__globals__, **own, **cells}


def evaluated(text: Any, names: dict[str, Any]) -> Type:
    """The type of an annotation, as text or syntax, with the names that its function sees."""
    code = text if isinstance(text, ast.expr) else ast.parse(text.strip(), mode="eval").body
    source = ast.unparse(code)
    try:
        found = eval(compile(ast.Expression(code), "<annotation>", "eval"), names)
    except Exception as error:
        raise CompileError(f"Unknown type name '{source}' ({error})") from None
    return evaluated(found, names) if isinstance(found, str) else annotation_type(found)


def comment_types(comment: str, names: dict[str, Any]) -> tuple[list[Type], Type]:
    """The types of ``(Tensor, int) -> Tensor`` in a type comment."""
    match = re.fullmatch(r"\s*\((.*)\)\s*->\s*(.*?)\s*", comment, re.S)
    if match is None:
        raise CompileError(f"the type comment {comment!r} is no (types) -> type")
    scope = {"Tensor": Tensor, **names}
    inner = ast.parse(f"({match[1]},)" if match[1].strip() else "()", mode="eval").body
    assert isinstance(inner, ast.Tuple)
    return [evaluated(part, scope) for part in inner.elts], evaluated(match[2], scope)


def type_of_value(value: Any) -> Type:
    """The type of a Python value: an attribute of a module, a constant, a default."""
    if value is None:
        return NONE
    if isinstance(value, Tensor):
        return TENSOR
    for kind, found in ((bool, BOOL), (int, INT), (float, FLOAT), (str, STR), (complex, COMPLEX)):
        if isinstance(value, kind) and not isinstance(value, enum.Enum):
            return found
    if isinstance(value, DType):
        return DTYPE
    if isinstance(value, Device):
        return DEVICE
    if isinstance(value, enum.Enum):
        return Type("Enum", python=type(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return named_tuple(type(value))
    if isinstance(value, tuple):
        return tuple_of(*map(type_of_value, value))
    if isinstance(value, list):
        return list_of(_common(value))
    if isinstance(value, dict):
        return dictionary(_common(list(value)), _common(list(value.values())))
    return ANY


def _common(values: list[Any]) -> Type:
    from coredispatch.frontend.jit.compiler.types import join

    found: Type | None = None
    for value in values:
        kind = type_of_value(value)
        found = kind if found is None else join(found, kind) or ANY
    return ANY if found is None else found


# ---- text --------------------------------------------------------------------------------------

_NAMES = {str(t): t for t in (TENSOR, INT, FLOAT, BOOL, STR, COMPLEX, DEVICE, DTYPE, NUMBER, NONE)}


def stored_type(kind: Type) -> str:
    """A type as a saved program has it: classes of the user's become ``Any``."""
    if kind.name in ("NamedTuple", "Class", "Enum", "Module"):
        return "Any"
    if not kind.args:
        return str(kind)
    return f"{kind.name}[{', '.join(map(stored_type, kind.args))}]"


def read_type(text: str) -> Type:
    """The type that :func:`stored_type` wrote; ``Any`` for what it never writes."""
    try:
        return _read(ast.parse(text, mode="eval").body)
    except (SyntaxError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return ANY


def _read(node: Any) -> Type:
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id, ANY)
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    parts = tuple(map(_read, inner))
    makers: dict[str, Any] = {
        "List": list_of,
        "Dict": dictionary,
        "Tuple": tuple_of,
        "Optional": optional,
        "Future": future,
        "Union": lambda *items: union(items),
    }
    made: Type = makers[node.value.id](*parts)
    return made


def python_type(text: str) -> Any:
    """What Python calls a type that :func:`stored_type` wrote."""
    return _python(read_type(text))


def _python(kind: Type) -> Any:
    plain: dict[Type, Any] = {
        TENSOR: Tensor,
        INT: int,
        FLOAT: float,
        BOOL: bool,
        STR: str,
        COMPLEX: complex,
        DEVICE: Device,
        DTYPE: DType,
        NONE: type(None),
        NUMBER: typing.Union[int, float, complex],  # noqa: UP007
        ANY: object,
    }
    if kind in plain:
        return plain[kind]
    inner = tuple(map(_python, kind.args))
    if kind.name == "List":
        return python_types.GenericAlias(list, inner)
    if kind.name == "Dict":
        return python_types.GenericAlias(dict, inner)
    if kind.name == "Tuple":
        return python_types.GenericAlias(tuple, inner)
    if kind.name == "Optional":
        return typing.Optional[inner[0]]  # noqa: UP045
    if kind.name == "Union":
        return typing.Union[inner]  # noqa: UP007
    return object
