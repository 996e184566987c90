"""Numbers that a traced program reads from sizes: ordinary numbers that know where they come from.

While a program is traced, ``x.shape[0]`` is a :class:`TracedInt`. It is an ``int`` with the value
that the example has, so all code takes it; what is computed from it is again such a number, and
where it becomes an argument of an operator the graph refers to the size instead of the value. A
comparison gives a plain ``bool``, and a conversion a plain number: the graph then holds for the
example's, which the recorder is told.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from coredispatch.graph.node import Node
from coredispatch.plugin import Symbol

__all__ = ["TracedFloat", "TracedInt", "plain", "traced_number"]


class _Number:
    """What both kinds share: the recorder, and how to make the node when it is needed."""

    recorder: Any
    _node: Node | None
    _make: Callable[[], Node]

    @property
    def node(self) -> Node:
        """The node of the number; made the first time it is asked for."""
        if self._node is None:
            self._node = self._make()
            self._node.meta.setdefault("value", plain(self))
        return self._node


class TracedInt(Symbol, int, _Number):  # type: ignore[misc]
    """An ``int`` with the node of a graph."""


class TracedFloat(float, _Number):
    """A ``float`` with the node of a graph."""


def traced_number(value: Any, recorder: Any, make: Callable[[], Node]) -> Any:
    """``value`` as a number that knows its node; what is no int or float stays plain."""
    if type(value) is int:
        kind: Any = TracedInt
    elif type(value) is float:
        kind = TracedFloat
    else:
        return value
    made = kind(value)
    made.recorder, made._node, made._make = recorder, None, make
    return made


def plain(value: Any) -> Any:
    """The number as an ordinary ``int`` or ``float``."""
    if isinstance(value, TracedInt):
        return int.__int__(value)
    if isinstance(value, TracedFloat):
        return float.__float__(value)
    return value


def _arithmetic(fn: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        if not all(isinstance(other, (int, float)) for other in others):
            return NotImplemented
        given = (self, *others)
        ordered = given[::-1] if reflected else given
        value = fn(*map(plain, ordered))
        recorder = self.recorder
        return traced_number(
            value, recorder, lambda: recorder.function(fn, tuple(map(recorder.argument, ordered)))
        )

    return method


def _comparison(fn: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        held = fn(plain(self), plain(other))
        self.recorder.numbered(self, "compares")
        return held

    return method


def _converted(fn: Callable[..., Any], what: str) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        self.recorder.numbered(self, what)
        return fn(plain(self), *others)

    return method


def _rounded(fn: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *digits: Any) -> Any:
        if isinstance(self, int) and not digits:
            return self
        value = fn(plain(self), *map(plain, digits))
        recorder, given = self.recorder, (self, *digits)
        return traced_number(
            value, recorder, lambda: recorder.function(fn, tuple(map(recorder.argument, given)))
        )

    return method


def _divmod(self: Any, other: Any) -> Any:
    return self // other, self % other


def _divmod_by(self: Any, other: Any) -> Any:
    return other // self, other % self


_TWO = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
#: what integers have besides, without the underscore that some functions end in
_BITS = ("lshift", "rshift", "and", "or", "xor")
for _kind in (TracedInt, TracedFloat):
    for _name in (*_TWO, *(_BITS if _kind is TracedInt else ())):
        _fn = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
        setattr(_kind, f"__{_name}__", _arithmetic(_fn, False))
        setattr(_kind, f"__r{_name}__", _arithmetic(_fn, True))
    for _name in ("neg", "pos", "abs", *(("invert",) if _kind is TracedInt else ())):
        setattr(_kind, f"__{_name}__", _arithmetic(getattr(operator, _name), False))
    for _name, _fn in {
        "round": round,
        "floor": math.floor,
        "ceil": math.ceil,
        "trunc": math.trunc,
    }.items():
        setattr(_kind, f"__{_name}__", _rounded(_fn))
    _kind.__divmod__, _kind.__rdivmod__ = _divmod, _divmod_by
    for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(_kind, f"__{_name}__", _comparison(getattr(operator, _name)))
    _kind.__hash__ = (int if _kind is TracedInt else float).__hash__  # type: ignore[method-assign]
    for _name, _fn in {
        "int": int,
        "float": float,
        "bool": bool,
        "str": str,
        "format": format,
    }.items():
        setattr(_kind, f"__{_name}__", _converted(_fn, f"takes {_name}() of"))
