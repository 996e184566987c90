"""Schemas: a Python signature read as an operator's contract.

``def add(self: Tensor, other: Tensor | Scalar) -> Tensor`` is all a schema needs. Annotations
are read as text, so that an operator definition needs no import for them; where they were
evaluated (no
``from __future__ import annotations``), the text of the types is read.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from coredispatch.registry.model.effects import (
    Alias,
    Mutates,
    Mutation,
    View,
    aliases_of,
    mutations_of,
)
from coredispatch.registry.model.errors import SchemaError, shown_value
from coredispatch.registry.model.results import NUMBERS, is_plain
from coredispatch.registry.model.value import Value

__all__ = ["REQUIRED", "Param", "Schema", "parameter_names"]


class _Required:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED: Final = _Required()

#: kind -> whether the dispatcher looks for keys in it
KINDS: Final[dict[str, bool]] = {
    "Tensor": True,
    "list[Tensor]": True,
    "Scalar": False,
    "int": False,
    "float": False,
    "bool": False,
    "str": False,
    "IntList": False,
    "FloatList": False,
    "DType": False,
    "Device": False,
    "Generator": False,
    "Index": True,
    "object": False,
}
_QUALIFIED: Final = re.compile(r"\b(?:\w+\.)+(\w+)")
_RETURNS: Final = re.compile(r"^(Tensor|None|list\[Tensor\]|tuple\[Tensor(, (Tensor|\.\.\.))*\])$")
_CAPITALS: Final = re.compile(r"\b(?:List|Tuple)\[")
_OUTER_COMMA: Final = re.compile(r",\s*(?![^\[]*\])")
_NUMBERS: Final = frozenset(("bool", "int", "float", "complex"))
_SYNONYMS: Final[dict[str, str]] = {
    "Sequence[Tensor]": "list[Tensor]",
    "tuple[Tensor, ...]": "list[Tensor]",
    "int | IntList": "IntList",
    **{
        f"{int_}{many}": "IntList"
        for int_ in ("", "int | ")
        for many in ("list[int]", "tuple[int, ...]", "Sequence[int]")
    },
    **{
        f"{float_}{many}": "FloatList"
        for float_ in ("", "float | ")
        for many in ("list[float]", "tuple[float, ...]", "Sequence[float]")
    },
    "Number": "Scalar",
}


@dataclass(frozen=True)
class Param:
    """One parameter: ``kind`` is a name of :data:`KINDS`."""

    name: str
    kind: str
    scalar: bool  # "Tensor | Scalar"
    optional: bool  # "... | None"
    default: Any
    keyword_only: bool

    @property
    def is_tensor(self) -> bool:
        """Whether the parameter holds one tensor (or a scalar or None in its place)."""
        return self.kind == "Tensor"

    @property
    def annotation(self) -> str:
        """The annotation as one would write it."""
        return (
            self.kind + (" | Scalar" if self.scalar else "") + (" | None" if self.optional else "")
        )

    def __str__(self) -> str:
        default = "" if self.default is REQUIRED else f" = {shown_value(self.default)}"
        return f"{self.name}: {self.annotation}{default}"


@dataclass(frozen=True)
class Schema:
    """An operator's signature: its parameters, its result, what it mutates and whether it views."""

    name: str
    params: tuple[Param, ...]
    returns: str
    mutations: tuple[Mutation, ...] = ()
    aliases: tuple[Alias, ...] = ()

    @classmethod
    def parse(
        cls,
        function: Callable[..., Any],
        name: str,
        *,
        mutates: Mutates = (),
        view: View = False,
    ) -> Schema:
        """Read the signature of ``function``; raises :class:`SchemaError` where it is not one."""
        params = tuple(_param(name, *written) for written in _parameters(name, function))
        returns = _text(function.__annotations__.get("return", inspect.Signature.empty))
        if not _RETURNS.match(returns) and not is_plain(returns):
            raise SchemaError(
                f"operator {name!r}: return annotation {returns!r} is not one a schema has",
                fix=f"return Tensor, tuple[Tensor, Tensor], list[Tensor], None, or {NUMBERS}",
            )
        mutations = mutations_of(name, params, mutates)
        aliases = aliases_of(name, params, returns, view, mutations)
        seen_default = False
        for p in params:
            if p.keyword_only:
                break
            if p.default is REQUIRED and seen_default:
                raise SchemaError(f"operator {name!r}: {p.name!r} follows a parameter with default")
            seen_default = seen_default or p.default is not REQUIRED
        return cls(name, params, returns, mutations, aliases)

    @functools.cached_property
    def multi_output(self) -> bool:
        """Whether the result is a tuple or list of tensors."""
        return self.returns not in ("Tensor", "None") and not self.plain

    @functools.cached_property
    def plain(self) -> bool:
        """Whether the result is a number, a text or a list of them, and no tensor."""
        return is_plain(self.returns)

    def written(self, args: tuple[Any, ...]) -> list[Value]:
        """The tensors that a call with these complete arguments writes to, in declared order."""
        found: list[Value] = []
        for mutation in self.mutations:
            if mutation.happens(args):
                argument = args[mutation.position]
                items = argument if isinstance(argument, (list, tuple)) else (argument,)
                found += [item for item in items if isinstance(item, Value)]
        return found

    def position(self, name: str) -> int:
        """Index of the parameter called ``name``."""
        for index, param in enumerate(self.params):
            if param.name == name:
                return index
        raise KeyError(name)

    def __str__(self) -> str:
        parts: list[str] = []
        starred = False
        for param in self.params:
            if param.keyword_only and not starred:
                parts.append("*")
                starred = True
            parts.append(str(param))
        return f"{self.name}({', '.join(parts)}) -> {self.returns}"


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters, as ``inspect.signature`` gives them, but at once."""
    code = _plain_code(function)
    if code is None:
        return tuple(inspect.signature(function).parameters)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _plain_code(function: Callable[..., Any]) -> CodeType | None:
    """The code of a function without ``*args`` and ``**kwargs`` that is no wrapper, else None."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return None
    return None if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) else code


def _parameters(op: str, function: Callable[..., Any]) -> Iterator[tuple[str, Any, Any, bool]]:
    """``(name, annotation, default, keyword-only)`` of each parameter.

    Read off the code object: measured 8 times as fast as ``inspect.signature``, and an import
    reads 600 of them.
    """
    empty = inspect.Parameter.empty
    code = _plain_code(function)
    if code is None:
        for p in inspect.signature(function).parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise SchemaError(
                    f"operator {op!r}: *{p.name} is not allowed in a schema",
                    fix="take a list[Tensor] or an IntList (which users may spread)",
                )
            yield p.name, p.annotation, p.default, p.kind is p.KEYWORD_ONLY
        return
    annotations = function.__annotations__
    defaults = getattr(function, "__defaults__", None) or ()
    keyword_defaults = getattr(function, "__kwdefaults__", None) or {}
    positional = code.co_argcount
    first_default = positional - len(defaults)
    for position, name in enumerate(parameter_names(function)):
        if position >= positional:
            default = keyword_defaults.get(name, empty)
        else:
            default = defaults[position - first_default] if position >= first_default else empty
        yield name, annotations.get(name, empty), default, position >= positional


@functools.cache
def _plain(text: str) -> str:
    """An annotation without module prefixes and quotes, in the newest spelling."""
    text = _QUALIFIED.sub(r"\1", text.strip().strip("'\""))
    return _CAPITALS.sub(lambda found: found.group().lower(), text)


@functools.cache
def _meaning(text: str) -> tuple[str, bool, bool]:
    """(kind, whether a scalar may stand for the tensor, whether None may) of an annotation."""
    parts = _alternatives(text)
    optional = "None" in parts
    parts = [part for part in parts if part != "None"]
    scalar = "Tensor" in parts and ("Scalar" in parts or "Number" in parts)
    if scalar:
        parts = ["Tensor"]
    return _SYNONYMS.get(" | ".join(parts), " | ".join(parts)), scalar, optional


def _alternatives(text: str) -> list[str]:
    """The parts of a union, also of ``Optional[...]`` and ``Union[...]``."""
    if text.startswith("Optional[") and text.endswith("]"):
        return [*_alternatives(text[9:-1]), "None"]
    if text.startswith("Union[") and text.endswith("]"):
        parts = _OUTER_COMMA.split(text[6:-1])
    else:
        parts = text.split("|")
    parts = ["None" if part.strip() == "NoneType" else part.strip() for part in parts]
    if _NUMBERS <= set(parts):  # what the name Scalar stands for, where it was evaluated
        parts = [part for part in parts if part not in _NUMBERS] + ["Scalar"]
    return parts


def _text(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return "<none>"
    if isinstance(annotation, str):
        text = annotation
    elif isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        text = annotation.__name__
    elif annotation is None:
        text = "None"
    else:
        text = str(annotation)
    return _plain(text)


# Types whose equal values are the same value: 0.0 == -0.0 is why float is not among them.
_SHARED_DEFAULTS: Final = frozenset((type, type(None), bool, int, str))
_known_params: Final[dict[tuple[Any, ...], Param]] = {}


def _param(op: str, name: str, annotation: Any, default: Any, keyword_only: bool) -> Param:
    """The parameter, as one object for all operators that have it: ``self: Tensor`` is many's."""
    if not isinstance(annotation, str) or type(default) not in _SHARED_DEFAULTS:
        return _new_param(op, name, annotation, default, keyword_only)
    written = (name, annotation, type(default), default, keyword_only)
    known = _known_params.get(written)
    if known is None:
        known = _known_params[written] = _new_param(op, name, annotation, default, keyword_only)
    return known


def _new_param(op: str, name: str, annotation: Any, default: Any, keyword_only: bool) -> Param:
    if annotation is inspect.Parameter.empty:
        raise SchemaError(
            f"operator {op!r}: parameter {name!r} has no annotation",
            fix=f"annotate it, for example {name}: Tensor",
        )
    text = _text(annotation)
    kind, scalar, optional = _meaning(text)
    if kind not in KINDS:
        fix = f"use one of {', '.join(KINDS)}, 'Tensor | Scalar', or one of them with '| None'"
        if not isinstance(annotation, str):
            fix += (
                "; annotations are read as text: begin the module with "
                "`from __future__ import annotations`"
            )
        raise SchemaError(
            f"operator {op!r}: parameter {name!r} has the unknown type {text!r}", fix=fix
        )
    if default is inspect.Parameter.empty:
        default = REQUIRED
    return Param(name, kind, scalar, optional or default is None, default, keyword_only)
