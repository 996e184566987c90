"""From the structure that a file says to the object: see :mod:`.grammar`."""

from __future__ import annotations

import base64
import collections
import enum
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from coredispatch.frontend.serialization.errors import Damage, SerializationError, shown
from coredispatch.frontend.serialization.grammar import FACTORIES, hides_a_member
from coredispatch.frontend.size import Size

__all__ = ["Builder", "Source"]

Steps = Iterator[int]
_SCALARS: Final = (type(None), bool, int, float, str)
_NOTHING: Final = object()
_DEEPEST_KEY: Final = 100
_MOST_EQUAL_HASHES: Final = 64
#: CPython frees chains of these by recursion in C, which ends in a crash when they are long
_FREED_BY_RECURSION: Final = {"slice", "deque", "defaultdict"}
_LONGEST_CHAIN: Final = 100
#: what a call returns of these was there before
_NEVER_NEW: Final = (
    type,
    enum.Enum,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
)
_OBJECT_KEYS: Final = {"keywords", "state", "items", "pairs", "setter"}


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


class Builder:
    """Makes the object without recursion, each node once, a node's parts before what needs them.

    Args:
        structure: as the grammar has it; nothing in it is believed.
        source: of records, blocks and names.
        place: how errors call the structure.
        strict: refuse what hashing or freeing it would take for ever or crash, state that would
            reach anything but a new object, and nodes that nothing refers to.
        work: how many parts may be hashed for keys, those that are shared counted each time.
    """

    def __init__(
        self, structure: Any, source: Source, place: str, *, strict: bool, work: int
    ) -> None:
        if not isinstance(structure, dict) or structure.keys() != {"root", "nodes"}:
            raise Damage(place, "it is not an object with root and nodes")
        if not isinstance(structure["nodes"], list):
            raise Damage(place, "nodes is not a list")
        self._root: Any = structure["root"]
        self._nodes: list[Any] = structure["nodes"]
        self._source = source
        self._place = place
        self._strict = strict
        self._work = work
        self._made: list[Any] = [_NOTHING] * len(self._nodes)
        self._done = bytearray(len(self._nodes))  # 1: begun, 2: complete
        self._measure: dict[int, tuple[int, int]] = {}  # of tuples: parts and depth
        self._chain: dict[int, int] = {}  # of nodes freed by recursion: length

    def build(self) -> Any:
        """The object."""
        try:
            needed = list(self._needed(self._root))
        except Damage as error:
            raise Damage(f"{self._place}, root", error.what) from error
        for child in needed:
            self._run(child)
        return self._value(self._root)

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
                raise error if error.place else Damage(self._at(number), error.what) from error
            if child is None:
                self._done[number] = 2
                stack.pop()
            elif not self._done[child]:
                stack.append((child, self._begin(child)))
            elif self._done[child] == 1 and self._made[child] is _NOTHING:
                if self._made[number] is _NOTHING:
                    raise Damage(self._at(child), "it is needed to make itself")
                waiting.append(stack.pop())

    def _at(self, number: int) -> str:
        node = self._nodes[number]
        kind = next(iter(node), "") if isinstance(node, dict) else ""
        return f"{self._place}, node {number}" + (f" ({kind!s:.20})" if kind else "")

    def _begin(self, number: int) -> Steps:
        node = self._nodes[number]
        kind = next(iter(node), None) if isinstance(node, dict) else None
        steps = _KINDS.get(kind) if isinstance(kind, str) else None
        if steps is None:
            raise Damage(self._at(number), f"{shown(node)} is not a node")
        if len(node) > 1 and not node.keys() <= _EXTRA.get(kind, set()) | {kind}:
            raise Damage(self._at(number), f"it has unknown keys: {shown(list(node))}")
        self._done[number] = 1
        if self._strict and kind in _FREED_BY_RECURSION:
            return self._measured_chain(number, steps(self, number, node[kind], node))
        return steps(self, number, node[kind], node)

    def _measured_chain(self, number: int, steps: Steps) -> Steps:
        longest = 0
        for child in steps:
            yield child
        for child in self._links(number):
            if self._done[child] != 2:
                raise Damage("", "it and a part of it contain each other")
            longest = max(longest, self._chain.get(child, 0))
        self._chain[number] = longest + 1
        if longest >= _LONGEST_CHAIN:
            raise Damage("", f"more than {_LONGEST_CHAIN} of its kind contain each other")

    def _links(self, number: int) -> Iterator[int]:
        """Parts of a node that are freed by recursion as it is."""
        kind, payload = next(iter(self._nodes[number].items()))
        parts = payload if kind == "slice" else payload[1]
        if kind == "defaultdict":
            parts = [value for pair in parts for value in pair]
        for part in parts:
            if type(part) is list and next(iter(self._nodes[part[0]])) in _FREED_BY_RECURSION:
                yield part[0]

    def _needed(self, value: Any) -> Steps:
        """The node that a value means, if it is not complete; also checks the value."""
        if type(value) is list:
            if len(value) != 1 or type(value[0]) is not int:
                raise Damage("", f"{shown(value)} does not name a node")
            number = value[0]
            if not 0 <= number < len(self._nodes):
                raise Damage("", f"there is no node {number}")
            if self._done[number] != 2:
                yield number
        elif type(value) not in _SCALARS:
            raise Damage("", f"{shown(value)} is not a value")

    def _all_needed(self, values: Any, length: int | None = None) -> Steps:
        if type(values) is not list or length not in (None, len(values)):
            raise Damage("", f"{shown(values)} is not a list of the right length")
        for value in values:
            if type(value) is list or type(value) not in _SCALARS:
                yield from self._needed(value)

    def _pairs_needed(self, pairs: Any) -> Steps:
        if type(pairs) is not list:
            raise Damage("", f"{shown(pairs)} is not a list of pairs")
        for pair in pairs:
            yield from self._all_needed(pair, 2)

    def _value(self, value: Any) -> Any:
        return self._made[value[0]] if type(value) is list else value

    def _values(self, values: list[Any]) -> list[Any]:
        made = self._made
        return [made[value[0]] if type(value) is list else value for value in values]

    # -- keys ------------------------------------------------------------------------------------

    def _keys(self, values: list[Any]) -> list[Any]:
        """Keys or members, which can be hashed in a time that fits the file.

        A tuple that contains the same tuple twice, and that another one twice ..., is small in
        memory and takes for ever to hash; a deep one overflows the stack.
        """
        keys = self._values(values)
        if not self._strict:
            return keys
        for value in values:
            parts, depth = self._measure.get(value[0], (1, 0)) if type(value) is list else (1, 0)
            self._work -= parts
            if self._work < 0 or depth > _DEEPEST_KEY:
                raise Damage("", "its keys are too large to be hashed")
        try:
            hashes = [hash(key) for key in keys] if len(keys) > _MOST_EQUAL_HASHES else []
        except Exception as error:
            raise Damage("", f"a key cannot be hashed: {shown(error)}") from error
        if hashes and max(collections.Counter(hashes).values()) > _MOST_EQUAL_HASHES:
            raise Damage("", "its keys all have the same hash")
        return keys

    def _measured(self, number: int, values: list[Any]) -> None:
        """Note how many parts a tuple has, and how deep it is."""
        parts, depth = 1, 0
        for value in values:
            inner = self._measure.get(value[0], (1, 0)) if type(value) is list else (1, 0)
            parts, depth = parts + inner[0], max(depth, inner[1] + 1)
        self._measure[number] = (parts, depth)

    def _fill(self, target: Any, pairs: list[Any]) -> None:
        keys = self._keys([key for key, _ in pairs])
        try:
            for key, (_, value) in zip(keys, pairs):
                target[key] = self._value(value)
        except Exception as error:
            raise Damage("", f"a key cannot be hashed: {shown(error)}") from error
        if len(target) != len(pairs):
            raise Damage("", "it has a key twice")

    # -- containers --------------------------------------------------------------------------------

    def _list(self, number: int, payload: Any, node: Any) -> Steps:
        made = self._made[number] = []
        yield from self._all_needed(payload)
        made.extend(self._values(payload))

    def _tuple(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self._all_needed(payload)
        self._measured(number, payload)
        self._made[number] = tuple(self._values(payload))

    def _set(self, number: int, payload: Any, node: Any) -> Steps:
        made = self._made[number] = set()
        yield from self._all_needed(payload)
        made.update(self._members(payload))

    def _frozenset(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self._all_needed(payload)
        self._measured(number, payload)
        self._made[number] = frozenset(self._members(payload))

    def _members(self, payload: list[Any]) -> set[Any]:
        try:
            found = set(self._keys(payload))
        except Damage:
            raise
        except Exception as error:
            raise Damage("", f"a member cannot be hashed: {shown(error)}") from error
        if len(found) != len(payload):
            raise Damage("", "it has a member twice")
        return found

    def _dict(self, number: int, payload: Any, node: Any) -> Steps:
        made = self._made[number] = {}
        yield from self._pairs_needed(payload)
        self._fill(made, payload)

    def _counter(self, number: int, payload: Any, node: Any) -> Steps:
        made = self._made[number] = collections.Counter()
        yield from self._pairs_needed(payload)
        self._fill(made, payload)

    def _ordered(self, number: int, payload: Any, node: Any) -> Steps:
        made = self._made[number] = collections.OrderedDict()
        yield from self._pairs_needed(payload)
        self._fill(made, payload)
        yield from self._pairs_needed(node.get("attributes", []))
        made.__dict__.update(self._attributes(type(made), node.get("attributes", [])))

    def _attributes(self, cls: type, pairs: list[Any]) -> dict[Any, Any]:
        found = {self._value(name): self._value(value) for name, value in pairs}
        for name in found:
            if hides_a_member(cls, name):
                raise Damage("", f"an attribute cannot be called {shown(name)}")
        return found

    def _defaultdict(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not list or len(payload) != 2:
            raise Damage("", f"{shown(payload)} is not a factory and pairs")
        name, pairs = payload
        if name is not None and (type(name) is not str or name not in FACTORIES):
            raise Damage("", f"{shown(name)} is not a known factory")
        made = self._made[number] = collections.defaultdict(FACTORIES.get(name))
        yield from self._pairs_needed(pairs)
        self._fill(made, pairs)

    def _deque(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not list or len(payload) != 2:
            raise Damage("", f"{shown(payload)} is not a length and values")
        longest, values = payload
        if longest is not None and (type(longest) is not int or not 0 <= longest < 1 << 63):
            raise Damage("", f"its greatest length is {shown(longest)}")
        made = self._made[number] = collections.deque(maxlen=longest)
        yield from self._all_needed(values)
        if longest is not None and len(values) > longest:
            raise Damage("", f"{len(values)} values are more than {longest}")
        made.extend(self._values(values))

    # -- numbers, text and facts -------------------------------------------------------------------

    def _int(self, number: int, payload: Any, node: Any) -> Steps:
        digits = payload.removeprefix("-") if type(payload) is str else ""
        if not digits.startswith("0x"):
            raise Damage("", f"{shown(payload)} is not a hexadecimal number")
        try:
            self._made[number] = int(payload, 16)
        except ValueError as error:
            raise Damage("", f"{shown(payload)} is not a hexadecimal number") from error
        self._measure[number] = (len(payload) // 16 + 1, 0)
        yield from ()

    def _float(self, number: int, payload: Any, node: Any) -> Steps:
        if payload not in ("nan", "inf", "-inf"):
            raise Damage("", f"{shown(payload)} is none of nan, inf and -inf")
        self._made[number] = float(payload)
        yield from ()

    def _complex(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self._all_needed(payload, 2)
        real, imag = self._values(payload)
        if type(real) is not float or type(imag) is not float:
            raise Damage("", "its parts are not two floats")
        self._made[number] = complex(real, imag)

    def _str(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not str:
            raise Damage("", f"{shown(payload)} is not text")
        self._made[number] = payload
        yield from ()

    def _bytes(self, number: int, payload: Any, node: Any) -> Steps:
        self._made[number] = self._data(payload)
        yield from ()

    def _bytearray(self, number: int, payload: Any, node: Any) -> Steps:
        self._made[number] = bytearray(self._data(payload))
        yield from ()

    def _data(self, payload: Any) -> bytes:
        if type(payload) is int:
            return self._source.block(payload)
        if type(payload) is bytes:  # of a pickle; JSON has none
            return payload
        try:
            return base64.b64decode(payload, validate=True)
        except (TypeError, ValueError) as error:
            raise Damage("", f"{shown(payload)} is not base64") from error

    def _range(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self._all_needed(payload, 3)
        start, stop, step = self._values(payload)
        if any(type(part) is not int for part in (start, stop, step)) or not step:
            raise Damage("", "its start, stop and step do not make a range")
        self._measured(number, payload)
        self._made[number] = range(start, stop, step)

    def _slice(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self._all_needed(payload, 3)
        self._made[number] = slice(*self._values(payload))

    def _size(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not list or any(type(n) is not int for n in payload):
            raise Damage("", f"{shown(payload)} is not a list of integers")
        self._measured(number, payload)
        self._made[number] = Size(payload)
        yield from ()

    def _dtype(self, number: int, payload: Any, node: Any) -> Steps:
        self._made[number] = self._source.dtype(payload)
        yield from ()

    def _device(self, number: int, payload: Any, node: Any) -> Steps:
        self._made[number] = self._source.device(payload)
        yield from ()

    def _generator(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not list or len(payload) != 2:
            raise Damage("", f"{shown(payload)} is not a device and a state")
        self._made[number] = self._source.generator(payload[0], self._data(payload[1]))
        yield from ()

    def _record(self, number: int, payload: Any, node: Any) -> Steps:
        made = self._made[number] = self._source.record(next(iter(node)), payload)
        if "attributes" in node:
            pairs = node["attributes"]
            yield from self._pairs_needed(pairs)
            self._source.set_attributes(made, self._attributes(type(made), pairs))

    # -- other objects -----------------------------------------------------------------------------

    def _global(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not str or payload.count(":") != 1:
            raise Damage("", f"{shown(payload)} is not the name of a class or function")
        self._made[number] = self._source.resolve(payload)
        yield from ()

    def _object(self, number: int, payload: Any, node: Any) -> Steps:
        new = "new" in node
        yield from self._all_needed(payload)
        keywords = node.get("keywords", [])
        yield from self._pairs_needed(keywords)
        callee, *arguments = self._values(payload) or [None]
        self._admit_callee(payload)
        named = {self._value(name): self._value(value) for name, value in keywords}
        if not all(type(name) is str for name in named):
            raise Damage("", "a keyword is not text")
        if new:
            if not isinstance(callee, type):
                raise Damage("", f"{shown(callee)} is not a class")
            arguments, callee = [callee, *arguments], callee.__new__
        made = self._calling(callee, *arguments, **named)
        self._made[number] = made
        yield from self._all_needed(node.get("items", []))
        for item in self._values(node.get("items", [])):
            self._calling(_put_in, made, item)
        yield from self._pairs_needed(node.get("pairs", []))
        for key, value in node.get("pairs", []):
            self._calling(operator.setitem, made, self._value(key), self._value(value))
        if "setter" in node:
            yield from self._needed(node["setter"])
            self._admit_callee([node["setter"]])
        if "state" in node:
            yield from self._needed(node["state"])
            state = self._value(node["state"])
            if "setter" in node:
                self._calling(self._value(node["setter"]), made, state)
            else:
                self._calling(self._set_state, made, state)

    def _admit_callee(self, payload: list[Any]) -> None:
        """Refuse to call anything but what a name stands for, which the source has admitted."""
        value = payload[0] if payload else None
        if type(value) is not list or (self._strict and "global" not in self._nodes[value[0]]):
            raise Damage("", "what it calls is not named")

    def _calling(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except (Damage, SerializationError):
            raise
        except Exception as error:
            name = getattr(function, "__qualname__", repr(function))
            raise SerializationError(
                f"{self._place}: {name} failed: {type(error).__name__}: {error}"
            ) from error

    def _set_state(self, made: Any, state: Any) -> None:
        cls = type(made)
        if self._strict and isinstance(made, _NEVER_NEW):
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
                if self._strict and hides_a_member(cls, name):
                    raise Damage("", f"{shown(name)} cannot be an attribute of a {cls.__name__}")
        if state:
            made.__dict__.update(state)
        for name, value in (slots or {}).items():
            object.__setattr__(made, name, value)


def _put_in(made: Any, item: Any) -> None:
    (made.append if hasattr(made, "append") else made.add)(item)


_KINDS: Final[dict[str, Callable[[Builder, int, Any, Any], Steps]]] = {
    "int": Builder._int,
    "float": Builder._float,
    "complex": Builder._complex,
    "str": Builder._str,
    "bytes": Builder._bytes,
    "bytearray": Builder._bytearray,
    "list": Builder._list,
    "tuple": Builder._tuple,
    "set": Builder._set,
    "frozenset": Builder._frozenset,
    "dict": Builder._dict,
    "OrderedDict": Builder._ordered,
    "Counter": Builder._counter,
    "defaultdict": Builder._defaultdict,
    "deque": Builder._deque,
    "range": Builder._range,
    "slice": Builder._slice,
    "Size": Builder._size,
    "dtype": Builder._dtype,
    "device": Builder._device,
    "generator": Builder._generator,
    "tensor": Builder._record,
    "array": Builder._record,
    "scalar": Builder._record,
    "global": Builder._global,
    "call": Builder._object,
    "new": Builder._object,
}
_EXTRA: Final[dict[Any, set[str]]] = {
    "tensor": {"attributes"},
    "OrderedDict": {"attributes"},
    "call": _OBJECT_KEYS,
    "new": _OBJECT_KEYS,
}
