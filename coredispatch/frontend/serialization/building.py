"""From the structure that a file says to the object: see :mod:`.grammar`."""

from __future__ import annotations

import base64
import collections
from typing import Any

from coredispatch.frontend.serialization.errors import Damage, shown
from coredispatch.frontend.serialization.grammar import FACTORIES, hides_a_member
from coredispatch.frontend.serialization.node_graph import Steps
from coredispatch.frontend.serialization.object_nodes import OBJECT_KEYS, ObjectNodes
from coredispatch.frontend.size import Size

__all__ = ["Builder"]


class Builder(ObjectNodes):
    """Makes an object of nodes of all kinds. Each method takes the node's number, what stands
    under its kind, and the whole node.
    """

    # -- containers --------------------------------------------------------------------------------

    def _list(self, number: int, payload: Any, node: Any) -> Steps:
        made = self.made[number] = []
        yield from self.all_needed(payload)
        made.extend(self.values(payload))

    def _tuple(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self.all_needed(payload)
        self.measured(number, payload)
        self.made[number] = tuple(self.values(payload))

    def _set(self, number: int, payload: Any, node: Any) -> Steps:
        made = self.made[number] = set()
        yield from self.all_needed(payload)
        made.update(self._members(payload))

    def _frozenset(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self.all_needed(payload)
        self.measured(number, payload)
        self.made[number] = frozenset(self._members(payload))

    def _members(self, payload: list[Any]) -> set[Any]:
        try:
            found = set(self.keys(payload))
        except Damage:
            raise
        except Exception as error:
            raise Damage("", f"a member cannot be hashed: {shown(error)}") from error
        if len(found) != len(payload):
            raise Damage("", "it has a member twice")
        return found

    def _dict(self, number: int, payload: Any, node: Any) -> Steps:
        made = self.made[number] = {}
        yield from self.pairs_needed(payload)
        self.fill(made, payload)

    def _counter(self, number: int, payload: Any, node: Any) -> Steps:
        made = self.made[number] = collections.Counter()
        yield from self.pairs_needed(payload)
        self.fill(made, payload)

    def _ordered(self, number: int, payload: Any, node: Any) -> Steps:
        made = self.made[number] = collections.OrderedDict()
        yield from self.pairs_needed(payload)
        self.fill(made, payload)
        yield from self.pairs_needed(node.get("attributes", []))
        made.__dict__.update(self._attributes(type(made), node.get("attributes", [])))

    def _attributes(self, cls: type, pairs: list[Any]) -> dict[Any, Any]:
        for name, _ in pairs:
            if hides_a_member(cls, self.value(name)):
                raise Damage("", f"an attribute cannot be called {shown(self.value(name))}")
        return {self.value(name): self.value(value) for name, value in pairs}

    def _defaultdict(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not list or len(payload) != 2:
            raise Damage("", f"{shown(payload)} is not a factory and pairs")
        name, pairs = payload
        if name is not None and (type(name) is not str or name not in FACTORIES):
            raise Damage("", f"{shown(name)} is not a known factory")
        made = self.made[number] = collections.defaultdict(
            None if name is None else FACTORIES[name]
        )
        yield from self.pairs_needed(pairs)
        self.fill(made, pairs)

    def _deque(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not list or len(payload) != 2:
            raise Damage("", f"{shown(payload)} is not a length and values")
        longest, values = payload
        if longest is not None and (type(longest) is not int or not 0 <= longest < 1 << 63):
            raise Damage("", f"its greatest length is {shown(longest)}")
        made = self.made[number] = collections.deque(maxlen=longest)
        yield from self.all_needed(values)
        if longest is not None and len(values) > longest:
            raise Damage("", f"{len(values)} values are more than {longest}")
        made.extend(self.values(values))

    # -- numbers, text and properties --------------------------------------------------------------

    def _int(self, number: int, payload: Any, node: Any) -> Steps:
        digits = payload.removeprefix("-") if type(payload) is str else ""
        if not digits.startswith("0x"):
            raise Damage("", f"{shown(payload)} is not a hexadecimal number")
        try:
            self.made[number] = int(payload, 16)
        except ValueError as error:
            raise Damage("", f"{shown(payload)} is not a hexadecimal number") from error
        self.measure[number] = (len(payload) // 16 + 1, 0)
        yield from ()

    def _float(self, number: int, payload: Any, node: Any) -> Steps:
        if payload not in ("nan", "inf", "-inf"):
            raise Damage("", f"{shown(payload)} is none of nan, inf and -inf")
        self.made[number] = float(payload)
        yield from ()

    def _complex(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self.all_needed(payload, 2)
        real, imag = self.values(payload)
        if type(real) is not float or type(imag) is not float:
            raise Damage("", "its parts are not two floats")
        self.made[number] = complex(real, imag)

    def _str(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not str:
            raise Damage("", f"{shown(payload)} is not text")
        self.made[number] = payload
        yield from ()

    def _bytes(self, number: int, payload: Any, node: Any) -> Steps:
        self.made[number] = self._data(payload)
        yield from ()

    def _bytearray(self, number: int, payload: Any, node: Any) -> Steps:
        self.made[number] = bytearray(self._data(payload))
        yield from ()

    def _data(self, payload: Any) -> bytes:
        if type(payload) is int:
            return self.source.block(payload)
        if type(payload) is bytes:  # of a pickle; JSON has none
            return payload
        try:
            return base64.b64decode(payload, validate=True)
        except (TypeError, ValueError) as error:
            raise Damage("", f"{shown(payload)} is not base64") from error

    def _range(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self.all_needed(payload, 3)
        start, stop, step = self.values(payload)
        if any(type(part) is not int for part in (start, stop, step)) or not step:
            raise Damage("", "its start, stop and step do not make a range")
        self.measured(number, payload)
        self.made[number] = range(start, stop, step)

    def _slice(self, number: int, payload: Any, node: Any) -> Steps:
        yield from self.all_needed(payload, 3)
        self.made[number] = slice(*self.values(payload))

    def _size(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not list or any(type(n) is not int for n in payload):
            raise Damage("", f"{shown(payload)} is not a list of integers")
        self.measured(number, payload)
        self.made[number] = Size(payload)
        yield from ()

    def _dtype(self, number: int, payload: Any, node: Any) -> Steps:
        self.made[number] = self.source.dtype(payload)
        yield from ()

    def _device(self, number: int, payload: Any, node: Any) -> Steps:
        self.made[number] = self.source.device(payload)
        yield from ()

    def _generator(self, number: int, payload: Any, node: Any) -> Steps:
        if type(payload) is not list or len(payload) != 2:
            raise Damage("", f"{shown(payload)} is not a device and a state")
        self.made[number] = self.source.generator(payload[0], self._data(payload[1]))
        yield from ()

    def _record(self, number: int, payload: Any, node: Any) -> Steps:
        made = self.made[number] = self.source.record(next(iter(node)), payload)
        if "attributes" in node:
            pairs = node["attributes"]
            yield from self.pairs_needed(pairs)
            self.source.set_attributes(made, self._attributes(type(made), pairs))


Builder.KINDS = {
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
    "global": Builder.make_global,
    "call": Builder.make_object,
    "new": Builder.make_object,
}
Builder.EXTRA_KEYS = {
    "tensor": {"attributes"},
    "OrderedDict": {"attributes"},
    "call": OBJECT_KEYS,
    "new": OBJECT_KEYS,
}
