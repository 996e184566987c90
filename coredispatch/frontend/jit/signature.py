"""Calls of compiled programs from Python: arguments by name, and as the types say."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.futures import Future
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
)
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Graph
from coredispatch.graph.examples import Example
from coredispatch.plugin import Device, DType, OpError, Value

__all__ = ["Signature"]

Check = Callable[[Any], Any]


class Signature:
    """The parameters of a graph.

    Calling it with the arguments of a call gives the tuple of all arguments in order. Raises a
    ``RuntimeError`` that names the argument where one is missing, too much, of another type, or
    of another structure than the example of a trace.
    """

    def __init__(self, graph: Graph, name: str) -> None:
        self.name = name
        places = graph.placeholders
        self.names = [str(place.target) for place in places]
        self.defaults = [place.args for place in places]
        self.kinds: list[Type] = [place.meta.get("type", ANY) for place in places]
        self.inferred = [bool(place.meta.get("inferred")) for place in places]
        self.examples: list[Example | None] = [place.meta.get("example") for place in places]
        self.checks = [(i, _check(kind)) for i, kind in enumerate(self.kinds) if kind not in (ANY,)]
        self.checks += [(i, _like(e)) for i, e in enumerate(self.examples) if e is not None]
        self.count = len(places)
        self.open = any(name.startswith("*") for name in self.names)

    def python(self, *first: str) -> inspect.Signature:
        """The parameters as ``inspect`` has them, behind others that come first."""
        kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
        made = [inspect.Parameter(name, kind) for name in first]
        for name, default in zip(self.names, self.defaults):
            if name.startswith("*"):
                made.append(inspect.Parameter(name[1:], inspect.Parameter.VAR_POSITIONAL))
                continue
            given = default[0] if default else inspect.Parameter.empty
            if not default and made and made[-1].default is not inspect.Parameter.empty:
                kind = inspect.Parameter.KEYWORD_ONLY  # only those have no default behind one
            made.append(inspect.Parameter(name, kind, default=given))
        return inspect.Signature(made)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments in order, converted where TorchScript converts them.

        As there, lists and dicts are copied: what the program does to them its caller does not see.
        """
        if self.open:
            return args
        if kwargs or len(args) != self.count:
            args = self._bound(args, kwargs)
        changed: list[Any] | None = None
        for index, check in self.checks:
            value = args[index]
            found = check(value)
            if found is not value:
                if found is _WRONG:
                    raise self._wrong(index, value)
                if changed is None:
                    changed = list(args)
                changed[index] = found
        return args if changed is None else tuple(changed)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if len(args) > self.count:
            raise OpError(
                f"{self.name}() expected at most {self.count} argument(s) but received "
                f"{len(args)} argument(s). Declaration: {self}"
            )
        found, rest = list(args), dict(kwargs)
        for name, default in zip(self.names[len(args) :], self.defaults[len(args) :]):
            if name in rest:
                found.append(rest.pop(name))
            elif default:
                found.append(default[0])
            else:
                raise OpError(
                    f"{self.name}() is missing value for argument '{name}'. Declaration: {self}"
                )
        if rest:
            raise OpError(
                f"Unknown keyword argument '{next(iter(rest))}' for operator '{self.name}'. "
                f"Declaration: {self}"
            )
        return tuple(found)

    def _wrong(self, index: int, value: Any) -> OpError:
        example = self.examples[index]
        fault = None if example is None else example.fault(value, self.names[index])
        if fault is not None:
            place, wanted, found = fault
            return OpError(
                f"{self.name}() Expected {wanted} for argument '{place}', as in the example of the "
                f"trace, but instead found {found}. Position: {index}. Declaration: {self}",
                fix="pass what has the structure of the example, trace with another example, or "
                "use jit.script, which keeps the control flow",
            )
        kind = self.kinds[index]
        guessed = " (inferred)" if self.inferred[index] else ""
        return OpError(
            f"{self.name}() Expected a value of type '{kind}{guessed}' for argument "
            f"'{self.names[index]}' but instead found type '{type(value).__name__}'. "
            f"Position: {index}. Declaration: {self}",
            fix="annotate the parameter with the type that it takes"
            if guessed
            else f"pass a {kind}",
        )

    def __str__(self) -> str:
        shown = ", ".join(f"{kind} {name}" for kind, name in zip(self.kinds, self.names))
        return f"{self.name}({shown})"


class _Wrong:
    """What a check gives for a value that does not fit."""


_WRONG = _Wrong()


def _like(example: Example) -> Check:
    if example.kind == "tensor":
        return _only((Tensor, Value))
    return lambda value: value if example.fault(value, "") is None else _WRONG


def _only(kind: Any) -> Check:
    return lambda value: value if isinstance(value, kind) else _WRONG


def _integer(value: Any) -> Any:
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, Tensor) and not value.is_floating_point() else _WRONG


def _floating(value: Any) -> Any:
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, Tensor) else _WRONG


def _boolean(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    return bool(value) if isinstance(value, Tensor) else _WRONG


_PLAIN: dict[Type, Check] = {
    TENSOR: _only((Tensor, Value)),
    INT: _integer,
    FLOAT: _floating,
    BOOL: _boolean,
    STR: _only(str),
    COMPLEX: lambda v: complex(v) if isinstance(v, (int, float, complex)) else _WRONG,
    DEVICE: lambda v: Device(v) if isinstance(v, str) else _only(Device)(v),
    DTYPE: _only(DType),
    NUMBER: _only((int, float, complex)),
    NONE: lambda v: v if v is None else _WRONG,
}


def _check(kind: Type) -> Check:
    found = _PLAIN.get(kind)
    if found is not None:
        return found
    inner = [_check(part) if part != ANY else _anything for part in kind.args]
    if kind.name == "Optional":
        return lambda v: None if v is None else inner[0](v)
    if kind.name == "List":
        return lambda v: _elements(v, inner[0])
    if kind.name == "Dict":
        return lambda v: _entries(v, *inner)
    if kind.name in ("Tuple", "NamedTuple"):
        return lambda v: _tuple(v, inner)
    if kind.name == "Union":
        return lambda v: next((x for x in (one(v) for one in inner) if x is not _WRONG), _WRONG)
    if kind.name == "Future":
        return _only(Future)
    if kind.name == "Enum" and isinstance(kind.python, type):
        return _only((kind.python, enum.Enum))
    return _anything


def _anything(value: Any) -> Any:
    return value


def _elements(value: Any, inner: Check) -> Any:
    if not isinstance(value, (list, tuple)):
        return _WRONG
    found = [inner(item) for item in value]
    return _WRONG if any(item is _WRONG for item in found) else found


def _entries(value: Any, key: Check, inner: Check) -> Any:
    if not isinstance(value, dict):
        return _WRONG
    found = {key(k): inner(v) for k, v in value.items()}
    return _WRONG if _WRONG in found or any(v is _WRONG for v in found.values()) else found


def _tuple(value: Any, inner: list[Check]) -> Any:
    if not isinstance(value, tuple) or len(value) != len(inner):
        return _WRONG
    found = [check(item) for check, item in zip(inner, value)]
    if any(item is _WRONG for item in found):
        return _WRONG
    if all(a is b for a, b in zip(found, value)):
        return value
    return type(value)(*found) if hasattr(value, "_fields") else tuple(found)
