"""What a name in a compiled program may stand for, while it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coredispatch.frontend.jit.compiler.source import Source
from coredispatch.frontend.jit.compiler.types import ANY, INT, Type, list_of
from coredispatch.graph import Graph, Node

__all__ = [
    "Bound",
    "Frame",
    "Items",
    "Missing",
    "ModuleRef",
    "Narrowed",
    "Sequence",
    "Sizes",
    "Static",
    "Val",
    "note",
]


@dataclass(frozen=True)
class Val:
    """A value of the running program: a node or a constant, with its type."""

    arg: Any
    type: Type

    @property
    def constant(self) -> bool:
        """Whether the value is known now."""
        return not isinstance(self.arg, Node) and self.type.name not in ("Optional", "Union", "Any")


@dataclass(frozen=True)
class Narrowed(Val):
    """A value of which a branch knows more than its type says: ``x`` where ``x is not None``."""

    whole: Val


class Sizes(Val):
    """The sizes of a tensor. TorchScript has them as a list, which is made where it matters."""

    @staticmethod
    def of(node: Node) -> Sizes:
        """The sizes that ``node`` gives."""
        return Sizes(node, list_of(INT))


@dataclass(frozen=True)
class Items:
    """A tuple whose elements are known one by one; modules and functions may be among them."""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class Static:
    """A Python object that exists while compiling only: a function, a class, a package."""

    value: Any


@dataclass(frozen=True)
class ModuleRef:
    """A module below the one that is compiled, by its path."""

    path: str
    module: Any

    def below(self, name: str) -> str:
        """The path of a member."""
        return f"{self.path}.{name}" if self.path else name


@dataclass(frozen=True)
class Bound:
    """A method of a value, a module or an object."""

    receiver: Any
    name: str
    function: Any = None


@dataclass(frozen=True)
class Missing:
    """A name that has no value on every way that leads here."""

    problem: str


@dataclass(frozen=True)
class Sequence:
    """Something to loop over: how many elements there are, and how to get one.

    ``items`` are the elements where they are known, which a loop then goes through one by one.
    """

    length: Callable[[], Val] | None = None
    element: Callable[[Val], Any] | None = None
    items: tuple[Any, ...] | None = None


@dataclass
class Frame:
    """One function while it is compiled.

    Attributes:
        env: what its names stand for, here and now.
        outer: what they stood for where the innermost block began.
        declared: the types of its annotated names.
        returns: the type of its result, None where it is not annotated.
        parameters: the names of its parameters.
    """

    source: Source
    names: dict[str, Any]
    env: dict[str, Any]
    function: Any = None
    outer: dict[str, Any] | None = None
    declared: dict[str, Type] | None = None
    returns: Type | None = None
    parameters: frozenset[str] = frozenset()


class Block:
    """A graph that is being written; inner ones get what they read from outside as inputs."""

    def __init__(self, parent: Block | None = None) -> None:
        self.graph, self.parent = Graph(), parent
        self.captured: dict[Node, Node] = {}
        self.last: Node = self.graph._root  # of the inputs

    def place(self, name: str) -> Node:
        """A new input behind those that are there."""
        graph, last = self.graph, self.last
        at_end = graph._insert_after is last
        with graph.inserting_after(last):
            made = graph.placeholder(name)
        self.last = made
        if at_end:
            graph._insert_after = made
        return made

    def local(self, node: Node) -> Node:
        """``node`` as this graph sees it."""
        if node.graph is self.graph:
            return node
        if self.parent is None:
            raise AssertionError(f"{node.name} is of no graph around")
        outer = self.parent.local(node)
        found = self.captured.get(outer)
        if found is None:
            found = self.enter(outer)
        return found

    def enter(self, outer: Node) -> Node:
        """A new input for ``outer``, a node of the graph around."""
        made = self.captured[outer] = self.place(outer.name)
        if "type" in outer.meta:
            made.meta["type"] = outer.meta["type"]
        return made


def note(node: Node, kind: Type) -> None:
    """Say on a node which type its value has: passes ask whether ``a * 2`` is a tensor."""
    if kind != ANY:
        node.meta["type"] = kind
