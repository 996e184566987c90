"""Working through the nodes of a structure: in which order they are made, and what may be a key."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Protocol

from coredispatch.frontend.serialization.errors import Damage, shown

__all__ = ["NodeGraph", "Source", "Steps"]

#: the numbers of the nodes that a node needs, one after the other; at its end the node is complete
Steps = Iterator[int]
_SCALARS: Final = frozenset((type(None), bool, int, float, str))
_NOTHING: Final = object()
_DEEPEST_KEY: Final = 100
_MOST_EQUAL_HASHES: Final = 64
#: CPython frees chains of these by recursion in C, which ends in a crash when they are long
_FREED_BY_RECURSION: Final = {"slice", "deque", "defaultdict"}
_LONGEST_CHAIN: Final = 100
_DEEPEST_OF_A_PICKLE: Final = 20_000
_TRUSTED: Final = " (weights_only=False loads it, if you trust the file)"


class Source(Protocol):
    """Gives what the structure only refers to. Raises Damage or SerializationError."""

    def record(self, kind: str, number: Any) -> Any:
        """The tensor, array or scalar of a record."""

    def set_attributes(self, tensor: Any, attributes: dict[Any, Any]) -> None:
        """Set attributes on a tensor."""

    def block(self, number: int) -> bytes:
        """The bytes of a block."""

    def resolve(self, name: str) -> Any:
        """The class or function called ``module:name``, if the caller of ``load`` admits it."""

    def dtype(self, name: str) -> Any:
        """The element type of that name."""

    def device(self, name: str) -> Any:
        """The device of that name."""

    def generator(self, device: str, state: bytes) -> Any:
        """A generator in that state."""


class NodeGraph:
    """Makes the object without recursion, each node once, a node's parts before what needs them.

    Args:
        structure: as the grammar has it; nothing in it is believed.
        source: of records, blocks and names.
        place: how errors call the structure.
        strict: refuse what hashing or freeing it would take for ever or crash, state that would
            reach anything but a new object, and nodes that nothing refers to.
        work: how many parts may be hashed for keys, those that are shared counted each time.
        pickled: the structure comes from a pickle. A level takes one or two bytes there and 1 KiB
            here, so that ``strict`` also bounds the depth. Python's pickler stops earlier.
    """

    #: how nodes of each kind are made, and which keys they may have beside their kind
    KINDS: ClassVar[dict[str, Callable[[Any, int, Any, Any], Steps]]] = {}
    EXTRA_KEYS: ClassVar[dict[str, set[str]]] = {}

    def __init__(
        self,
        structure: Any,
        source: Source,
        place: str,
        *,
        strict: bool,
        work: int,
        pickled: bool = False,
    ) -> None:
        if not isinstance(structure, dict) or structure.keys() != {"root", "nodes"}:
            raise Damage(place, "it is not an object with root and nodes")
        if not isinstance(structure["nodes"], list):
            raise Damage(place, "nodes is not a list")
        self._root: Any = structure["root"]
        self.nodes: list[Any] = structure["nodes"]
        self.source = source
        self.place = place
        self.strict = strict
        self._work = work
        self._deepest = _DEEPEST_OF_A_PICKLE if strict and pickled else sys.maxsize
        self.made: list[Any] = [_NOTHING] * len(self.nodes)
        self._done = bytearray(len(self.nodes))  # 1: begun, 2: complete
        self.measure: dict[int, tuple[int, int]] = {}  # of tuples: parts and depth
        self._chain: dict[int, int] = {}  # of nodes freed by recursion: length

    def build(self) -> Any:
        """The object."""
        try:
            needed = list(self.needed(self._root))
        except Damage as error:
            raise Damage(f"{self.place}, root", error.what) from error
        for child in needed:
            self._run(child)
        return self.value(self._root)

    def unused(self) -> int | None:
        """The first node that the object does not contain."""
        found = self._done.find(0)
        return None if found < 0 else found

    # -- working through the nodes -------------------------------------------------------------

    def _run(self, root: int) -> None:
        stack: list[tuple[int, Steps]] = [(root, self._begin(root))]
        # Lists and the like inside a tuple that they contain: filled when the tuple is there.
        waiting: list[tuple[int, Steps]] = []
        while stack or waiting:
            if not stack:
                stack.append(waiting.pop())
            number, steps = stack[-1]
            try:
                child = next(steps, None)
            except Damage as error:
                if error.place:
                    raise
                raise Damage(self._at(number), error.what, error.fix) from error
            if child is None:
                self._done[number] = 2
                stack.pop()
            elif not self._done[child]:
                if len(stack) >= self._deepest:
                    raise Damage(
                        self._at(child), f"it is nested more than {self._deepest} deep{_TRUSTED}"
                    )
                stack.append((child, self._begin(child)))
            elif self._done[child] == 1 and self.made[child] is _NOTHING:
                if self.made[number] is _NOTHING:
                    raise Damage(self._at(child), "it is needed to make itself")
                waiting.append(stack.pop())

    def _at(self, number: int) -> str:
        node = self.nodes[number]
        kind = next(iter(node), "") if isinstance(node, dict) else ""
        return f"{self.place}, node {number}" + (f" ({kind!s:.20})" if kind else "")

    def _begin(self, number: int) -> Steps:
        node = self.nodes[number]
        kind: Any = next(iter(node), None) if isinstance(node, dict) else None
        steps = self.KINDS.get(kind) if isinstance(kind, str) else None
        if steps is None:
            raise Damage(self._at(number), f"{shown(node)} is not a node")
        if len(node) > 1 and not node.keys() <= self.EXTRA_KEYS.get(kind, set()) | {kind}:
            raise Damage(self._at(number), f"it has unknown keys: {shown(list(node))}")
        self._done[number] = 1
        if self.strict and kind in _FREED_BY_RECURSION:
            return self._measured_chain(number, steps(self, number, node[kind], node))
        return steps(self, number, node[kind], node)

    def _measured_chain(self, number: int, steps: Steps) -> Steps:
        longest = 0
        for child in steps:
            yield child
        for child in self._links(number):
            if self._done[child] != 2:
                raise Damage("", f"it and a part of it contain each other{_TRUSTED}")
            longest = max(longest, self._chain.get(child, 0))
        self._chain[number] = longest + 1
        if longest >= _LONGEST_CHAIN:
            raise Damage("", f"more than {_LONGEST_CHAIN} of its kind contain each other{_TRUSTED}")

    def _links(self, number: int) -> Iterator[int]:
        """Parts of a node that are freed by recursion as it is."""
        kind, payload = next(iter(self.nodes[number].items()))
        parts = payload if kind == "slice" else payload[1]
        if kind == "defaultdict":
            parts = [value for pair in parts for value in pair]
        for part in parts:
            if type(part) is list and next(iter(self.nodes[part[0]])) in _FREED_BY_RECURSION:
                yield part[0]

    def needed(self, value: Any) -> Steps:
        """The node that a value means, if it is not complete; also checks the value."""
        if type(value) is list:
            if len(value) != 1 or type(value[0]) is not int:
                raise Damage("", f"{shown(value)} does not name a node")
            number = value[0]
            if not 0 <= number < len(self.nodes):
                raise Damage("", f"there is no node {number}")
            if self._done[number] != 2:
                yield number
        elif type(value) not in _SCALARS:
            raise Damage("", f"{shown(value)} is not a value")

    def all_needed(self, values: Any, length: int | None = None) -> Steps:
        if type(values) is not list or length not in (None, len(values)):
            raise Damage("", f"{shown(values)} is not a list of the right length")
        for value in values:
            if type(value) not in _SCALARS:
                yield from self.needed(value)

    def pairs_needed(self, pairs: Any) -> Steps:
        """:meth:`needed` for all keys and values, which are checked to be pairs."""
        if type(pairs) is not list:
            raise Damage("", f"{shown(pairs)} is not a list of pairs")
        for pair in pairs:
            if type(pair) is not list or len(pair) != 2:
                raise Damage("", f"{shown(pair)} is not a pair")
            for value in pair:
                if type(value) not in _SCALARS:
                    yield from self.needed(value)

    def value(self, value: Any) -> Any:
        return self.made[value[0]] if type(value) is list else value

    def values(self, values: list[Any]) -> list[Any]:
        made = self.made
        return [made[value[0]] if type(value) is list else value for value in values]

    # -- keys ------------------------------------------------------------------------------------

    def keys(self, values: list[Any]) -> list[Any]:
        """Keys or members, which can be hashed in a time that fits the file.

        A tuple that contains the same tuple twice, and that another one twice ..., is small in
        memory and takes for ever to hash; a deep one overflows the stack.
        """
        keys = self.values(values)
        if not self.strict:
            return keys
        for value in values:
            parts, depth = self.measure.get(value[0], (1, 0)) if type(value) is list else (1, 0)
            self._work -= parts
            if self._work < 0 or depth > _DEEPEST_KEY:
                raise Damage("", f"its keys are too large to be hashed{_TRUSTED}")
        try:
            hashes = [hash(key) for key in keys] if len(keys) > _MOST_EQUAL_HASHES else []
        except Exception as error:
            raise Damage("", f"a key cannot be hashed: {shown(error)}") from error
        if hashes and max(collections.Counter(hashes).values()) > _MOST_EQUAL_HASHES:
            raise Damage("", f"its keys all have the same hash{_TRUSTED}")
        return keys

    def measured(self, number: int, values: list[Any]) -> None:
        """Note how many parts a tuple has, and how deep it is."""
        parts, depth = 1, 0
        for value in values:
            inner = self.measure.get(value[0], (1, 0)) if type(value) is list else (1, 0)
            parts, depth = parts + inner[0], max(depth, inner[1] + 1)
        self.measure[number] = (parts, depth)

    def fill(self, target: Any, pairs: list[Any]) -> None:
        keys = self.keys([key for key, _ in pairs])
        try:
            for key, (_, value) in zip(keys, pairs):
                target[key] = self.value(value)
        except Exception as error:
            raise Damage("", f"a key cannot be hashed: {shown(error)}") from error
        if len(target) != len(pairs):
            raise Damage("", "it has a key twice")
