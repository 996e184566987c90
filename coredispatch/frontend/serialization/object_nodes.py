"""Nodes of other objects than containers and numbers: named, called, and given a state.

Which names are admitted is the source's decision; here is what an admitted class or function can
do. As strict, it is what pickle would do, less all that reaches objects that were there before.
"""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Callable
from typing import Any, Final

from coredispatch.frontend.serialization.errors import Damage, SerializationError, shown
from coredispatch.frontend.serialization.grammar import hides_a_member
from coredispatch.frontend.serialization.node_graph import NodeGraph, Steps
from coredispatch.frontend.tensor import Tensor

__all__ = ["OBJECT_KEYS", "ObjectNodes"]

#: what a node of an object may say beside how it is made
OBJECT_KEYS: Final = {"keywords", "state", "items", "pairs", "setter"}
#: what a call returns of these was there before
_NEVER_NEW: Final = (
    type,
    enum.Enum,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    Tensor,  # made of a record, never of a state
)


class ObjectNodes(NodeGraph):
    """Makes the nodes of kind ``global``, ``call`` and ``new``."""

    def make_global(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not str or payload.count(":") != 1:
            raise Damage("", f"{shown(payload)} is not the name of a class or function")
        self.made[number] = self.source.resolve(payload)
        yield from ()

    def make_object(self, number: int, payload: Any, node: Any) -> Steps:
        new = "new" in node
        yield from self.all_needed(payload)
        keywords = node.get("keywords", [])
        yield from self.pairs_needed(keywords)
        callee, *arguments = self.values(payload) or [None]
        self._admit_callee(payload)
        if not all(type(name) is str for name, _ in keywords):
            raise Damage("", "a keyword is not a short text")
        named = {name: self.value(value) for name, value in keywords}
        if new:
            if not isinstance(callee, type):
                raise Damage("", f"{shown(callee)} is not a class")
            if self.strict and issubclass(callee, Tensor):
                raise Damage("", f"a {callee.__name__} is made of a record")
            arguments, callee = [callee, *arguments], callee.__new__
        made = self._calling(callee, *arguments, **named)
        self.made[number] = made
        yield from self.all_needed(node.get("items", []))
        for item in self.values(node.get("items", [])):
            self._calling(_put_in, made, item)
        yield from self.pairs_needed(node.get("pairs", []))
        for key, value in node.get("pairs", []):
            self._calling(operator.setitem, made, self.value(key), self.value(value))
        if "setter" in node:
            yield from self.needed(node["setter"])
            self._admit_callee([node["setter"]])
        if "state" in node:
            yield from self.needed(node["state"])
            state = self.value(node["state"])
            if "setter" in node:
                self._calling(self.value(node["setter"]), made, state)
            else:
                self._calling(self._set_state, made, state)

    def _admit_callee(self, payload: list[Any]) -> None:
        """Refuse to call anything but what a name stands for, which the source has admitted."""
        value = payload[0] if payload else None
        if type(value) is not list or (self.strict and "global" not in self.nodes[value[0]]):
            raise Damage("", "what it calls is not named")

    def _calling(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except (Damage, SerializationError):
            raise
        except Exception as error:
            name = getattr(function, "__qualname__", repr(function))
            raise Damage(
                "",
                f"{name} failed: {type(error).__name__}: {error}",
                fix="load it with the version of the class that it was saved with",
            ) from error

    def _set_state(self, made: Any, state: Any) -> None:
        cls = type(made)
        if self.strict and isinstance(made, _NEVER_NEW):
            raise Damage("", f"it would change {shown(made)}, which is not its own")
        own = getattr(cls, "__setstate__", None)
        if own is not None:
            own(made, state)
            return
        slots: Any = None
        if isinstance(state, tuple) and len(state) == 2:
            state, slots = state
        for names in (state, slots):
            if not isinstance(names, dict | None):
                raise Damage("", f"the state of a {cls.__name__} is not a dict")
            for name in names or {}:
                if self.strict and hides_a_member(cls, name):
                    raise Damage("", f"{shown(name)} cannot be an attribute of a {cls.__name__}")
        if state:
            made.__dict__.update(state)
        for name, value in (slots or {}).items():
            object.__setattr__(made, name, value)


def _put_in(made: Any, item: Any) -> None:
    (made.append if hasattr(made, "append") else made.add)(item)
