"""The structure of version 1, a pickle: read opcode by opcode, and never run.

Version 1 wrote the structure with Python's pickler at protocol 4. This reader knows the opcodes
that the pickler uses for what :mod:`.grammar` can say, and makes the same nodes of them; it
imports, calls and changes nothing. What the nodes may do is decided in one place,
:mod:`.building`. Opcodes: ``Lib/pickletools.py`` of CPython.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from coredispatch.frontend.serialization.errors import Damage, shown
from coredispatch.frontend.serialization.grammar import FACTORIES

__all__ = ["read_pickle"]

Node = dict[str, Any]

PLACE: Final = "structure.pkl"
_MOST_NODES: Final = 500_000
_MOST_COPIED: Final = 16
_DEEPEST_MARK: Final = 2_000  # Python's pickler gives up before that
_MARK: Final = object()


class _Global(NamedTuple):
    module: str
    name: str


def read_pickle(data: bytes) -> dict[str, Any]:
    """The structure that a pickle of version 1 stands for.

    Raises:
        Damage: it has an opcode, or an order of opcodes, that version 1 never wrote.
    """
    return _Reader(data).read()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        self._nodes: list[Node] = []
        self._named: dict[_Global, list[int]] = {}
        self._tensors: dict[Any, list[int]] = {}
        self._given: set[int] = set()
        self._empty_tuple: list[int] = []

    def read(self) -> dict[str, Any]:
        start = 0
        try:
            while True:
                start = self._position
                opcode = self._take(1)
                if opcode == b".":
                    break
                _OPCODES[opcode](self)
        except Damage as error:
            raise Damage(f"{PLACE}, byte {start}", error.what) from error
        except KeyError as error:
            raise Damage(f"{PLACE}, byte {start}", f"{error} is no opcode it uses") from error
        except IndexError as error:
            raise Damage(f"{PLACE}, byte {start}", "something is missing before it") from error
        if len(self._stack) != 1 or self._position != len(self._data):
            raise Damage(PLACE, "it does not end with one object")
        return {"root": self._as_value(self._stack[0]), "nodes": self._nodes}

    # -- bytes, stack and nodes ------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        piece = self._data[self._position : self._position + count]
        if len(piece) != count:
            raise Damage("", "the pickle ends here")
        self._position += count
        return piece

    def _number(self, format: str) -> Any:
        (number,) = struct.unpack("<" + format, self._take(struct.calcsize("<" + format)))
        return number

    def _pop(self) -> Any:
        if self._marks and len(self._stack) <= self._marks[-1]:
            raise Damage("", "something is missing before it")
        return self._stack.pop()

    def _pop_value(self) -> Any:
        return self._as_value(self._pop())

    def _pop_to_mark(self) -> list[Any]:
        mark = self._marks.pop()
        items, self._stack[mark:] = self._stack[mark:], []
        return [self._as_value(item) for item in items]

    def _node(self, kind: str, payload: Any) -> list[int]:
        if len(self._nodes) >= _MOST_NODES:
            raise Damage(
                "",
                f"it has more than {_MOST_NODES} parts; load it with weights_only=False if you "
                "trust it, and save it again",
            )
        self._nodes.append({kind: payload})
        return [len(self._nodes) - 1]

    def _push(self, kind: str, payload: Any) -> None:
        self._stack.append(self._node(kind, payload))

    def _as_value(self, item: Any) -> Any:
        if not isinstance(item, _Global):
            return item
        if item not in self._named:
            self._named[item] = self._node("global", f"{item.module}:{item.name}")
        return self._named[item]

    def _parts_of(self, item: Any, kind: str) -> Any:
        """The payload of a node of that kind."""
        node = self._nodes[item[0]] if type(item) is list else {}
        if kind not in node:
            raise Damage("", f"a {kind} is missing before it")
        return node[kind]

    def _copied(self, item: Any, kind: str) -> Any:
        """The payload of a node whose elements go over to another node.

        Once if it is long: a small file could otherwise ask for thousands of copies.
        """
        parts = self._parts_of(item, kind)
        if len(parts) > _MOST_COPIED:
            if item[0] in self._given:
                raise Damage("", f"a {kind} of {len(parts)} parts is used twice")
            self._given.add(item[0])
        return parts

    def _top_node(self) -> Node:
        top = self._stack[-1]
        if type(top) is not list:
            raise Damage("", "it would change something that cannot be changed")
        return self._nodes[top[0]]

    # -- what opcodes do -------------------------------------------------------------------------

    def _protocol(self) -> None:
        if self._position != 1 or self._take(1) != b"\x04":
            raise Damage("", "it is not a pickle of protocol 4")

    def _frame(self) -> None:
        self._take(8)  # how much may be read at once

    def _mark(self) -> None:
        if len(self._marks) >= _DEEPEST_MARK:
            raise Damage("", "it is nested too deeply")
        self._marks.append(len(self._stack))

    def _pop_mark(self) -> None:
        del self._stack[self._marks.pop() :]

    def _memoize(self) -> None:
        self._memo.append(self._stack[-1])

    def _long(self, format: str) -> None:
        self._put_int(int.from_bytes(self._take(self._number(format)), "little", signed=True))

    def _put_int(self, number: int) -> None:
        if -(1 << 63) <= number < 1 << 64:
            self._stack.append(number)
        else:
            self._push("int", hex(number))

    def _float(self) -> None:
        (number,) = struct.unpack(">d", self._take(8))
        if math.isfinite(number):
            self._stack.append(number)
        else:
            self._push("float", repr(number))

    def _text(self, format: str) -> None:
        try:
            text = self._take(self._number(format)).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise Damage("", f"a text is not UTF-8: {error}") from error
        self._stack.append(text)

    def _bytes(self, format: str) -> None:
        self._push("bytes", self._take(self._number(format)))

    def _tuple(self, count: int) -> None:
        items = [self._pop_value() for _ in range(count)]
        self._push("tuple", items[::-1])

    def _no_tuple(self) -> None:
        self._empty_tuple = self._empty_tuple or self._node("tuple", [])
        self._stack.append(self._empty_tuple)

    def _append(self, items: list[Any]) -> None:
        node = self._top_node()
        if "list" in node:
            node["list"].extend(items)
        elif "deque" in node:
            node["deque"][1].extend(items)
        elif "new" in node or "call" in node:
            node.setdefault("items", []).extend(items)
        else:
            raise Damage("", "it appends to something that is no list")

    def _set_items(self, items: list[Any]) -> None:
        node = self._top_node()
        kind = next(iter(node))
        if len(items) % 2:
            raise Damage("", "a key has no value")
        pairs = [list(pair) for pair in zip(items[::2], items[1::2])]
        if kind in ("dict", "OrderedDict", "Counter"):
            node[kind].extend(pairs)
        elif kind == "defaultdict":
            node[kind][1].extend(pairs)
        elif kind in ("new", "call"):
            node.setdefault("pairs", []).extend(pairs)
        else:
            raise Damage("", "it sets items of something that is no dict")

    def _one_item(self) -> None:
        value, key = self._pop_value(), self._pop_value()
        self._set_items([key, value])

    def _add_items(self) -> None:
        items = self._pop_to_mark()
        self._parts_of(self._stack[-1], "set").extend(items)

    def _global(self) -> None:
        name, module = self._pop(), self._pop()
        if type(name) is not str or type(module) is not str:
            raise Damage("", "a class or function is not named by text")
        self._stack.append(_Global(module, name))

    def _reduce(self) -> None:
        arguments = self._copied(self._pop_value(), "tuple")
        callee = self._pop()
        if not isinstance(callee, _Global):
            raise Damage("", "what it calls is not named")
        make = _REDUCED.get(callee)
        if make is None:
            self._push("call", [self._as_value(callee), *arguments])
        else:
            self._push(*make(self, arguments))

    def _new(self) -> None:
        arguments = self._copied(self._pop_value(), "tuple")
        callee = self._pop()
        if not isinstance(callee, _Global):
            raise Damage("", "the class is not named")
        if callee.name == "Generator" and callee.module.startswith("coredispatch."):
            self._push("generator", None)  # complete with its state
        else:
            self._push("new", [self._as_value(callee), *arguments])

    def _new_with_keywords(self) -> None:
        keywords = self._copied(self._pop_value(), "dict")
        self._new()
        self._top_node()["keywords"] = keywords

    def _build(self) -> None:
        state = self._pop_value()
        node = self._top_node()
        if "generator" in node:
            pairs = self._parts_of(state, "dict")
            found = dict(pairs) if len(pairs) == 2 else {}
            if found.keys() != {"device", "state"}:
                raise Damage("", "a generator has no device and state")
            node["generator"] = [found["device"], self._copied(found["state"], "bytes")]
        elif "OrderedDict" in node:
            node["attributes"] = self._copied(state, "dict")
        elif "new" in node or "call" in node:
            node["state"] = state
        else:
            raise Damage("", "it sets the state of something that has none")

    def _reference(self) -> None:
        kind, *rest = self._parts_of(self._pop_value(), "tuple") or [None]
        if kind in ("dtype", "device") and len(rest) == 1:
            self._push(kind, rest[0])
        elif kind == "size" and len(rest) == 1:
            self._push("Size", self._copied(rest[0], "tuple"))
        elif kind == "tensor" and len(rest) in (1, 2) and type(rest[0]) is int:
            if rest[0] not in self._tensors:
                # Of which kind the record is stands in the record.
                self._tensors[rest[0]] = self._node("tensor", rest[0])
            found = self._tensors[rest[0]]
            if len(rest) == 2:
                self._nodes[found[0]]["attributes"] = self._copied(rest[1], "dict")
            self._stack.append(found)
        else:
            raise Damage("", f"{shown(kind)} is not a kind of reference")

    # -- calls that have a node of their own ------------------------------------------------------

    def _no_arguments(self, arguments: list[Any]) -> None:
        if arguments:
            raise Damage("", "it has arguments that version 1 did not write")

    def _made_bytearray(self, arguments: list[Any]) -> tuple[str, Any]:
        return "bytearray", self._copied(arguments[0], "bytes") if arguments else b""

    def _made_ordered(self, arguments: list[Any]) -> tuple[str, Any]:
        self._no_arguments(arguments)
        return "OrderedDict", []

    def _made_counter(self, arguments: list[Any]) -> tuple[str, Any]:
        return "Counter", list(self._copied(arguments[0] if arguments else None, "dict"))

    def _made_defaultdict(self, arguments: list[Any]) -> tuple[str, Any]:
        name: str | None = None
        if arguments:
            module, _, name = self._parts_of(arguments[0], "global").partition(":")
            if getattr(FACTORIES.get(name), "__module__", None) != module:
                raise Damage("", f"{module}.{name} is not a default factory that version 1 trusts")
        return "defaultdict", [name, []]

    def _made_deque(self, arguments: list[Any]) -> tuple[str, Any]:
        if arguments and (len(arguments) != 2 or self._empty(arguments[0])):
            raise Damage("", "it has arguments that version 1 did not write")
        return "deque", [arguments[1] if arguments else None, []]

    def _empty(self, value: Any) -> bool:
        node = self._nodes[value[0]] if type(value) is list else {}
        return not any(node.get(kind) == [] for kind in ("tuple", "list"))


def _as_is(kind: str) -> Callable[[_Reader, list[Any]], tuple[str, Any]]:
    return lambda reader, arguments: (kind, arguments)


_REDUCED: Final[dict[_Global, Callable[[_Reader, list[Any]], tuple[str, Any]]]] = {
    _Global("builtins", "complex"): _as_is("complex"),
    _Global("builtins", "range"): _as_is("range"),
    _Global("builtins", "slice"): _as_is("slice"),
    _Global("builtins", "bytearray"): _Reader._made_bytearray,
    _Global("collections", "OrderedDict"): _Reader._made_ordered,
    _Global("collections", "Counter"): _Reader._made_counter,
    _Global("collections", "defaultdict"): _Reader._made_defaultdict,
    _Global("collections", "deque"): _Reader._made_deque,
}

_OPCODES: Final[dict[bytes, Callable[[_Reader], Any]]] = {
    b"\x80": _Reader._protocol,
    b"\x95": _Reader._frame,
    b"(": _Reader._mark,
    b"1": _Reader._pop_mark,
    b"0": _Reader._pop,
    b"\x94": _Reader._memoize,
    b"h": lambda r: r._stack.append(r._memo[r._number("B")]),
    b"j": lambda r: r._stack.append(r._memo[r._number("I")]),
    b"N": lambda r: r._stack.append(None),
    b"\x88": lambda r: r._stack.append(True),
    b"\x89": lambda r: r._stack.append(False),
    b"K": lambda r: r._stack.append(r._number("B")),
    b"M": lambda r: r._stack.append(r._number("H")),
    b"J": lambda r: r._stack.append(r._number("i")),
    b"\x8a": lambda r: r._long("B"),
    b"\x8b": lambda r: r._long("I"),
    b"G": _Reader._float,
    b"\x8c": lambda r: r._text("B"),
    b"X": lambda r: r._text("I"),
    b"\x8d": lambda r: r._text("Q"),
    b"C": lambda r: r._bytes("B"),
    b"B": lambda r: r._bytes("I"),
    b"\x8e": lambda r: r._bytes("Q"),
    b")": _Reader._no_tuple,
    b"\x85": lambda r: r._tuple(1),
    b"\x86": lambda r: r._tuple(2),
    b"\x87": lambda r: r._tuple(3),
    b"t": lambda r: r._push("tuple", r._pop_to_mark()),
    b"]": lambda r: r._push("list", []),
    b"a": lambda r: r._append([r._pop_value()]),
    b"e": lambda r: r._append(r._pop_to_mark()),
    b"}": lambda r: r._push("dict", []),
    b"s": _Reader._one_item,
    b"u": lambda r: r._set_items(r._pop_to_mark()),
    b"\x8f": lambda r: r._push("set", []),
    b"\x90": _Reader._add_items,
    b"\x91": lambda r: r._push("frozenset", r._pop_to_mark()),
    b"\x93": _Reader._global,
    b"R": _Reader._reduce,
    b"\x81": _Reader._new,
    b"\x92": _Reader._new_with_keywords,
    b"b": _Reader._build,
    b"Q": _Reader._reference,
}
