"""PyTorch's schema strings: read, inferred from a function, and as the signature of an operator.

``foo(Tensor x, Tensor(a!) out, int[2] k=1, *, float? eps=None) -> (Tensor, Tensor)``
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coredispatch.registry.model import dtypes
from coredispatch.registry.model.device import Device

__all__ = ["Argument", "FunctionSchema", "parse_schema", "signature_of"]

_WHOLE = re.compile(r"^\s*(?P<name>[\w:.]*)\s*\((?P<args>.*)\)\s*->\s*(?P<returns>.*?)\s*$", re.S)
_TYPE = re.compile(
    r"^(?P<base>[A-Za-z_]\w*)(?P<alias>\([^)]*\))?(?P<inner>\?)?(?P<list>\[\d*\])?(?P<optional>\?)?$"
)
#: type in a schema -> annotation of a parameter, and of a list of them
_ANNOTATIONS = {
    "Tensor": ("Tensor", "list[Tensor]"),
    "int": ("int", "IntList"),
    "SymInt": ("int", "IntList"),
    "float": ("float", "FloatList"),
    "bool": ("bool", "object"),
    "str": ("str", "object"),
    "Scalar": ("Scalar", "object"),
    "ScalarType": ("DType", "object"),
    "Device": ("Device", "object"),
    "Generator": ("Generator", "object"),
    "Layout": ("object", "object"),
    "MemoryFormat": ("object", "object"),
    "Any": ("object", "object"),
}
_RETURNS = {"int": "int", "SymInt": "int", "float": "float", "bool": "bool", "Scalar": "float"}


@dataclass(frozen=True)
class Argument:
    """One argument, or one result, of a schema."""

    name: str
    base: str
    is_list: bool = False
    optional: bool = False
    alias: str = ""
    default: Any = None
    has_default: bool = False
    kwarg_only: bool = False
    text: str = ""

    @property
    def is_write(self) -> bool:
        """Whether the operator writes to it."""
        return "!" in self.alias

    @property
    def type(self) -> str:
        """The type without what it aliases, ``Tensor?`` for an optional tensor."""
        return self.base + ("[]" if self.is_list else "") + ("?" if self.optional else "")

    @property
    def annotation(self) -> str:
        """The annotation of a parameter of a coredispatch operator."""
        found = _ANNOTATIONS[self.base][self.is_list]
        return found + (" | None" if self.optional else "")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class FunctionSchema:
    """A schema as read; ``str`` of it is its text."""

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    text: str = field(compare=False)

    @property
    def is_mutable(self) -> bool:
        """Whether the operator writes to an argument."""
        return any(argument.is_write for argument in self.arguments)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def _refuse(text: str, why: str) -> RuntimeError:
    return RuntimeError(f"the schema {text!r} cannot be read: {why}")


def _split(text: str) -> list[str]:
    """``text`` at its commas that stand in no bracket and no string."""
    parts, depth, quote, current = [], 0, "", ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        if letter == "," and not depth and not quote:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    return [*parts, current.strip()] if current.strip() else parts


def _typed(schema: str, text: str) -> dict[str, Any]:
    found = _TYPE.match(text.replace(" ", ""))
    if found is None or found["base"] not in _ANNOTATIONS:
        raise _refuse(schema, f"{text!r} is not a type; there are {', '.join(_ANNOTATIONS)}")
    is_list = found["list"] is not None
    optional = bool(found["optional"] or (found["inner"] and not is_list))
    return {
        "base": found["base"],
        "is_list": is_list,
        "optional": optional,
        "alias": (found["alias"] or "").strip("()"),
    }


def _default(schema: str, base: str, is_list: bool, text: str) -> Any:
    if text == "None":
        return None
    if text in ("True", "False"):
        return text == "True"
    if text[:1] in "'\"":
        return Device(text[1:-1]) if base == "Device" else text[1:-1]
    if text.startswith("["):
        return tuple(_default(schema, base, False, part) for part in _split(text[1:-1]))
    try:
        value: Any = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            value = getattr(dtypes, text, None)
            if base != "ScalarType" or not isinstance(value, dtypes.DType):
                return text if base in ("MemoryFormat", "Layout") else _unknown(schema, text)
    return (value,) if is_list and base in ("int", "SymInt", "float") else value


def _unknown(schema: str, text: str) -> Any:
    raise _refuse(schema, f"{text!r} is no default value")


def _argument(schema: str, text: str, kwarg_only: bool) -> Argument:
    before, equals, default = text.partition("=")
    kind, _, name = before.strip().rpartition(" ")
    if not kind or not name.isidentifier():
        raise _refuse(schema, f"{text!r} is no argument such as 'Tensor x' or 'int dim=0'")
    details = _typed(schema, kind)
    value = (
        _default(schema, details["base"], details["is_list"], default.strip()) if equals else None
    )
    return Argument(
        name, default=value, has_default=bool(equals), kwarg_only=kwarg_only, text=text, **details
    )


def parse_schema(text: str) -> FunctionSchema:
    """The :class:`FunctionSchema` of ``name(arguments) -> results``; RuntimeError if it is none."""
    found = _WHOLE.match(text)
    if found is None:
        raise _refuse(text, "it is not of the form name(Tensor x, int n=1) -> Tensor")
    name, _, overload = found["name"].partition(".")
    arguments: list[Argument] = []
    kwarg_only = False
    for part in _split(found["args"]):
        if part == "*":
            kwarg_only = True
        else:
            arguments.append(_argument(text, part, kwarg_only))
    if len({argument.name for argument in arguments}) < len(arguments):
        raise _refuse(text, "two arguments have one name")
    results = found["returns"].strip()
    if results.startswith("(") and results.endswith(")"):
        parts = _split(results[1:-1])
    else:
        parts = [results]
    returns = []
    for part in parts:
        words = part.rsplit(" ", 1)
        named = len(words) == 2 and words[1].isidentifier()
        details = _typed(text, words[0] if named else part)
        returns.append(Argument(words[1] if named else "", text=part, **details))
    return FunctionSchema(name, overload, tuple(arguments), tuple(returns), text.strip())


def _returned(schema: FunctionSchema) -> str:
    kinds = [("list[Tensor]" if r.is_list else r.base) for r in schema.returns]
    if not kinds:
        return "None"
    if kinds == ["Tensor"] or kinds == ["list[Tensor]"]:
        return kinds[0]
    if len(kinds) == 1 and kinds[0] in _RETURNS:
        return _RETURNS[kinds[0]]
    if all(kind == "Tensor" for kind in kinds):
        return f"tuple[{', '.join(kinds)}]"
    raise NotImplementedError(
        f"the schema {schema.text!r} returns {', '.join(kinds)}: an operator returns a tensor, "
        "several tensors, a list of tensors, a number or nothing"
    )


def signature_of(
    schema: FunctionSchema, body: Callable[..., Any], hidden_device: bool
) -> Callable[..., Any]:
    """A function with the schema's parameters and annotations that calls ``body`` by position.

    ``hidden_device`` adds a parameter that says where a call without tensors runs.
    """
    names = [argument.name for argument in schema.arguments]
    for name in names:
        if keyword.iskeyword(name):
            raise _refuse(schema.text, f"{name!r} is a keyword of Python")
    defaults: dict[str, Any] = {"body": body}
    parameters = []
    for argument in schema.arguments:
        if argument.kwarg_only and "*" not in parameters:
            parameters.append("*")
        if argument.has_default:
            defaults[f"default_{argument.name}"] = argument.default
            parameters.append(f"{argument.name}=default_{argument.name}")
        else:
            parameters.append(argument.name)
    if hidden_device:
        parameters += ([] if "*" in parameters else ["*"]) + ["_device=None"]
    # Every name was checked to be an identifier: nothing of the text is run.
    source = f"def operator({', '.join(parameters)}):\n    return body({', '.join(names)})"
    exec(compile(source, "<schema>", "exec"), defaults)
    function: Callable[..., Any] = defaults["operator"]
    function.__annotations__ = {a.name: a.annotation for a in schema.arguments}
    if hidden_device:
        function.__annotations__["_device"] = "Device | None"
    function.__annotations__["return"] = _returned(schema)
    function.__name__ = function.__qualname__ = schema.name.rpartition("::")[2]
    return function
