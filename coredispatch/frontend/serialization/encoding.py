"""From an object to the structure that a file says: see :mod:`.grammar`."""

from __future__ import annotations

import base64
import collections
import copyreg
import math
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from coredispatch.frontend.serialization.errors import UnsavableObjectError, shown
from coredispatch.frontend.serialization.grammar import (
    FACTORIES,
    SHORT_TEXT,
    SMALL_BYTES,
    hides_a_member,
)
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.generator import Generator
from coredispatch.registry.model.sizes import Symbol

__all__ = ["Encoder", "Records"]

Node = dict[str, Any]

_PLAIN_SEQUENCES: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
}
_PLAIN_MAPPINGS: dict[type, str] = {dict: "dict", collections.Counter: "Counter"}
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def number_of(symbol: Symbol) -> Any:
    """The number that stands for itself in a program that is captured: files have numbers."""
    made: Any = symbol.__reduce__()
    return made[0](*made[1])


class Records(Protocol):
    """Takes what the structure only refers to."""

    def add(self, obj: Any) -> tuple[str, int] | None:
        """The kind and number of the record of a tensor, array or scalar; None for others."""

    def attributes(self, tensor: Tensor) -> dict[str, Any]:
        """What was set on the tensor as attributes."""

    def add_bytes(self, data: bytes) -> int:
        """The number of the block that holds `data`."""


class Encoder:
    """Works through an object without recursion: nodes refer to each other by number.

    An object is a node once, however often and wherever it is met.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._nodes: list[Node] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # what has an id in `numbers` must live until the end
        self._waiting: collections.deque[tuple[Any, Node]] = collections.deque()

    def encode(self, obj: Any) -> dict[str, Any]:
        """The structure of `obj`.

        Raises:
            UnsavableObjectError: it holds something that cannot be named or taken apart.
        """
        root = self._value(obj)
        while self._waiting:
            waiting, node = self._waiting.popleft()
            self._describe(waiting, node)
        return {"root": root, "nodes": self._nodes}

    def _value(self, obj: Any) -> Any:
        cls = type(obj)
        if obj is None or cls is bool:
            return obj
        if cls is int and -(1 << 63) <= obj < 1 << 64:
            return obj
        if cls is float and math.isfinite(obj):
            return obj
        if cls is str and len(obj) <= SHORT_TEXT:
            return obj
        if isinstance(obj, Symbol):
            return self._value(number_of(obj))
        number = self._numbers.get(id(obj))
        if number is None:
            number = self._numbers[id(obj)] = len(self._nodes)
            node: Node = {}
            self._kept.append(obj)
            self._nodes.append(node)
            self._waiting.append((obj, node))
        return [number]

    def _values(self, items: Any) -> list[Any]:
        return [self._value(item) for item in items]

    def _pairs(self, items: Any) -> list[list[Any]]:
        return [[self._value(key), self._value(value)] for key, value in items]

    def _describe(self, obj: Any, node: Node) -> None:
        cls = type(obj)
        describe = _BY_TYPE.get(cls)
        if describe is not None:
            describe(self, obj, node)
        elif isinstance(obj, Tensor | np.ndarray | np.generic):
            self._record(obj, node)
        elif isinstance(obj, type | types.FunctionType) and cls not in copyreg.dispatch_table:
            self._global(obj, None, node)
        else:
            self._reduced(obj, node)

    # -- kinds of their own ------------------------------------------------------------------

    def _sequence(self, obj: Any, node: Node) -> None:
        node[_PLAIN_SEQUENCES[type(obj)]] = self._values(obj)

    def _mapping(self, obj: Any, node: Node) -> None:
        if getattr(obj, "__dict__", None):  # attributes of a Counter
            self._reduced(obj, node)
            return
        node[_PLAIN_MAPPINGS[type(obj)]] = self._pairs(obj.items())

    def _ordered(self, obj: Any, node: Node) -> None:
        if any(hides_a_member(type(obj), name) for name in obj.__dict__):
            self._reduced(obj, node)
            return
        node["OrderedDict"] = self._pairs(obj.items())
        if obj.__dict__:  # state_dict keeps the versions of modules there
            node["attributes"] = self._pairs(obj.__dict__.items())

    def _defaultdict(self, obj: Any, node: Node) -> None:
        factory = obj.default_factory
        name = getattr(factory, "__name__", None)
        if factory is not None and FACTORIES.get(str(name)) is not factory:
            self._reduced(obj, node)
            return
        node["defaultdict"] = [name, self._pairs(obj.items())]

    def _deque(self, obj: Any, node: Node) -> None:
        node["deque"] = [obj.maxlen, self._values(obj)]

    def _steps(self, obj: Any, node: Node) -> None:
        node[type(obj).__name__] = self._values((obj.start, obj.stop, obj.step))

    def _int(self, obj: int, node: Node) -> None:
        node["int"] = hex(obj)

    def _float(self, obj: float, node: Node) -> None:
        node["float"] = repr(obj)

    def _complex(self, obj: complex, node: Node) -> None:
        node["complex"] = self._values((obj.real, obj.imag))

    def _str(self, obj: str, node: Node) -> None:
        node["str"] = obj

    def _bytes(self, obj: Any, node: Node) -> None:
        data = bytes(obj)
        node[type(obj).__name__] = (
            base64.b64encode(data).decode()
            if len(data) <= SMALL_BYTES
            else self._records.add_bytes(data)
        )

    def _size(self, obj: Any, node: Node) -> None:
        node["Size"] = list(map(int, obj))

    def _dtype(self, obj: DType, node: Node) -> None:
        node["dtype"] = obj.name

    def _device(self, obj: Device, node: Node) -> None:
        node["device"] = str(obj)

    def _generator(self, obj: Generator, node: Node) -> None:
        node["generator"] = [str(obj.device), base64.b64encode(obj.state_bytes()).decode()]

    def _record(self, obj: Any, node: Node) -> None:
        found = self._records.add(obj)
        if found is None:
            self._reduced(obj, node)
            return
        node[found[0]] = found[1]
        extra = self._records.attributes(obj) if isinstance(obj, Tensor) else {}
        for name in extra:
            if hides_a_member(type(obj), name):
                raise UnsavableObjectError(
                    f"save: the attribute {name!r} of a {type(obj).__name__} hides a method or "
                    "property of its class",
                    fix="give it another name",
                )
        if extra:
            node["attributes"] = self._pairs(extra.items())

    # -- everything else, as pickle takes it apart -------------------------------------------

    def _global(self, obj: Any, name: str | None, node: Node) -> None:
        name = name or str(getattr(obj, "__qualname__", None) or getattr(obj, "__name__", ""))
        module = pickle.whichmodule(obj, name)  # type: ignore[attr-defined]
        try:
            __import__(module)
            found: Any = sys.modules[module]
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, KeyError, AttributeError) as error:
            raise UnsavableObjectError(
                f"save: {shown(obj)} cannot be found again as {module}.{name}",
                fix="save a state_dict, or define it at the top level of a module",
            ) from error
        if found is not obj:
            raise UnsavableObjectError(f"save: {shown(obj)} is not what {module}.{name} is now")
        node["global"] = f"{module}:{name}"

    def _reduced(self, obj: Any, node: Node) -> None:
        reduce = copyreg.dispatch_table.get(type(obj))
        try:
            parts: Any = obj.__reduce_ex__(4) if reduce is None else reduce(obj)
        except TypeError as error:
            raise UnsavableObjectError(
                f"save: a {type(obj).__name__} cannot be saved: {error}", fix="save a state_dict"
            ) from error
        if isinstance(parts, str):
            self._global(obj, parts, node)
            return
        self._kept.append(parts)
        padded: list[Any] = [*parts, None, None, None, None]
        callee, arguments, state, items, pairs, setter = padded[:6]
        name = getattr(callee, "__name__", "")
        if name == "__newobj_ex__":
            cls, arguments, keywords = arguments
            node["new"] = self._values((cls, *arguments))
            node["keywords"] = self._pairs(keywords.items())
        elif name == "__newobj__":
            node["new"] = self._values(arguments)
        else:
            node["call"] = self._values((callee, *arguments))
        if state is not None:
            node["state"] = self._value(state)
        if items is not None:
            node["items"] = self._values(items)
        if pairs is not None:
            node["pairs"] = self._pairs(pairs)
        if setter is not None:
            node["setter"] = self._value(setter)


_BY_TYPE: dict[type, Callable[[Encoder, Any, Node], None]] = {
    **dict.fromkeys(_PLAIN_SEQUENCES, Encoder._sequence),
    **dict.fromkeys(_PLAIN_MAPPINGS, Encoder._mapping),
    collections.OrderedDict: Encoder._ordered,
    collections.defaultdict: Encoder._defaultdict,
    collections.deque: Encoder._deque,
    range: Encoder._steps,
    slice: Encoder._steps,
    int: Encoder._int,
    float: Encoder._float,
    complex: Encoder._complex,
    str: Encoder._str,
    bytes: Encoder._bytes,
    bytearray: Encoder._bytes,
    Size: Encoder._size,
    DType: Encoder._dtype,
    Device: Encoder._device,
    Generator: Encoder._generator,
}
