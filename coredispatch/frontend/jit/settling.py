"""What a trace leaves behind: the tensors that the program kept become plain ones."""

from __future__ import annotations

import weakref
from typing import Any

from coredispatch.frontend.autograd.recording import node_of
from coredispatch.frontend.nn.module import Module
from coredispatch.graph.capture import Recorder, Traced
from coredispatch.graph.node import Node
from coredispatch.graph.numbers import TracedFloat, TracedInt, plain
from coredispatch.plugin import Value
from coredispatch.registry import TABLE
from coredispatch.registry.model.value import storage_of

__all__ = ["SettlingRecorder"]

#: what a tensor is, besides its class
_SLOTS = ("raw", "keys", "_dtype", "_storage", "_view", "_grad")


class SettlingRecorder(Recorder):
    """Knows the tensors that it gave to the program, and makes plain ones of those that last.

    A program may keep a tensor anywhere: in a buffer, a list, a closure. The tensor itself changes,
    so that all of these hold the value of the traced call afterwards.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.given: list[weakref.ref[Any]] = []
        self.shared: set[int] = set()  # values that the caller has too

    def entered(self, value: Any, node: Node) -> Any:
        """An input: the tensor is the caller's."""
        self.shared.add(id(value))
        return super().entered(value, node)

    def wrap(self, value: Any, node: Node) -> Any:
        """Results as values that the graph knows."""
        made = super().wrap(value, node)
        if isinstance(value, Value):
            self.given.append(weakref.ref(made))
        return made

    def settle(self, root: Module | None) -> None:
        """The trace is over; ``root`` is the module whose attributes may hold numbers of it."""
        known = self.shared | set(self.paths)
        for reference in self.given:
            tensor = reference()
            traced = Traced.of(tensor)
            if traced is not None:
                _become(tensor, traced.value, known)
        self.given = []
        for module in () if root is None else root.modules():
            for name, value in list(vars(module).items()):
                settled = _plain(value)
                if settled is not value:
                    vars(module)[name] = settled


def _become(tensor: Any, value: Any, known: set[int]) -> None:
    """Make ``tensor`` what ``value`` is: itself where nobody else has it, else a view of all."""
    if id(value) in known or value._view is not None or storage_of(value).aliases:
        value = TABLE.operator("view_as")(value, value)
    known.add(id(value))  # a second tensor of this value shares its memory
    storage_of(value)
    for name in _SLOTS:
        setattr(tensor, name, getattr(value, name))
    tensor._node, tensor._output_nr = node_of(value), value._output_nr
    if tensor._view is not None:
        tensor._storage.aliases.append(weakref.ref(tensor))


def _plain(value: Any) -> Any:
    """The value with ordinary numbers; lists and dicts change in place."""
    if isinstance(value, (TracedInt, TracedFloat)):
        return plain(value)
    if type(value) is list:
        value[:] = [_plain(item) for item in value]
    elif type(value) is dict:
        for key, item in value.items():
            value[key] = _plain(item)
    elif type(value) is tuple:
        items = tuple(_plain(item) for item in value)
        return items if any(a is not b for a, b in zip(items, value)) else value
    return value
