"""Pickles, read opcode by opcode and never run.

The reader knows the opcodes that Python's pickler uses for what :mod:`.grammar` can say, and makes
the same nodes of them; it imports, calls and changes nothing. What the nodes may do is decided in
one place, :mod:`.building`. Which opcodes, calls and references there are is a dialect's business:
:mod:`.pickled` has that of version 1, :mod:`.torch_pickle` that of PyTorch. Opcodes:
``Lib/pickletools.py`` of CPython.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

from coredispatch.frontend.serialization.errors import Damage
from coredispatch.frontend.serialization.grammar import FACTORIES

__all__ = ["Global", "PickleReader"]

Node = dict[str, Any]

_MOST_COPIED: Final = 16
_DEEPEST_MARK: Final = 2_000  # Python's pickler gives up before that
_MARK: Final = object()


class Global(NamedTuple):
    """A class or function that a pickle names."""

    module: str
    name: str


class PickleReader:
    """Reads one pickle.

    Attributes:
        nodes: what was read, in the order of the pickle; the payload of ``bytes`` is bytes.
        position: of the next byte that is not read yet.
    """

    #: what each opcode does
    OPCODES: ClassVar[dict[bytes, Callable[[Any], Any]]] = {}
    #: calls that have a node of their own
    CALLS: ClassVar[dict[Global, Callable[[Any, list[Any]], tuple[str, Any]]]] = {}
    #: how errors call the pickle, and who writes such pickles
    PLACE: ClassVar[str] = ""
    WRITER: ClassVar[str] = ""
    MOST_NODES: ClassVar[int] = 500_000

    def __init__(self, data: Any, position: int = 0) -> None:
        self._data = data
        self.position = position
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self.nodes: list[Node] = []
        self._named: dict[Global, list[int]] = {}
        self._given: set[int] = set()
        self._empty_tuple: list[int] = []

    def read(self) -> dict[str, Any]:
        """The structure that the pickle stands for.

        Raises:
            Damage: it has an opcode, or an order of opcodes, that the writer never uses.
        """
        start = 0
        try:
            while True:
                start = self.position
                opcode = self._take(1)
                if opcode == b".":
                    break
                self.OPCODES[opcode](self)
        except Damage as error:
            raise Damage(f"{self.PLACE}, byte {start}", error.what, error.fix) from error
        except KeyError as error:
            raise Damage(f"{self.PLACE}, byte {start}", f"{error} is no opcode it uses") from error
        except IndexError as error:
            raise Damage(f"{self.PLACE}, byte {start}", "something is missing before it") from error
        if len(self._stack) != 1:
            raise Damage(self.PLACE, "it does not end with one object")
        return {"root": self._as_value(self._stack[0]), "nodes": self.nodes}

    # -- bytes, stack and nodes ------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        piece: bytes = self._data[self.position : self.position + count]
        if len(piece) != count:
            raise Damage("", "the pickle ends here")
        self.position += count
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
        if len(self.nodes) >= self.MOST_NODES:
            raise Damage(
                "",
                f"it has more than {self.MOST_NODES} parts; load it with weights_only=False if you "
                "trust it, and save it again",
            )
        self.nodes.append({kind: payload})
        return [len(self.nodes) - 1]

    def _push(self, kind: str, payload: Any) -> None:
        self._stack.append(self._node(kind, payload))

    def _as_value(self, item: Any) -> Any:
        if not isinstance(item, Global):
            return item
        if item not in self._named:
            self._named[item] = self._node("global", f"{item.module}:{item.name}")
        return self._named[item]

    def _parts_of(self, item: Any, kind: str) -> Any:
        """The payload of a node of that kind."""
        node = self.nodes[item[0]] if type(item) is list else {}
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
        return self.nodes[top[0]]

    # -- what opcodes do -------------------------------------------------------------------------

    def _frame(self) -> None:
        self._take(8)  # how much may be read at once

    def _mark(self) -> None:
        if len(self._marks) >= _DEEPEST_MARK:
            raise Damage("", "it is nested too deeply")
        self._marks.append(len(self._stack))

    def _pop_mark(self) -> None:
        del self._stack[self._marks.pop() :]

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _remembered(self, number: int) -> None:
        if number not in self._memo:
            raise Damage("", "something is missing before it")
        self._stack.append(self._memo[number])

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
        self._stack.append(Global(module, name))

    def _pop_global(self) -> Global:
        item = self._pop()
        if not isinstance(item, Global):
            raise Damage("", "what it calls is not named")
        return item

    def _reduce(self) -> None:
        arguments = self._copied(self._pop_value(), "tuple")
        callee = self._pop_global()
        make = self.CALLS.get(callee)
        if make is None:
            self._push("call", [self._as_value(callee), *arguments])
        else:
            self._push(*make(self, arguments))

    def _new(self) -> None:
        arguments = self._copied(self._pop_value(), "tuple")
        callee = self._pop_global()
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

    # -- calls that have a node of their own ------------------------------------------------------

    def _no_arguments(self, arguments: list[Any]) -> None:
        if arguments:
            raise Damage("", f"it has arguments that {self.WRITER} does not write")

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
                raise Damage("", f"{module}.{name} is not a default factory that is trusted")
        return "defaultdict", [name, []]

    def _made_deque(self, arguments: list[Any]) -> tuple[str, Any]:
        if arguments and (len(arguments) != 2 or self._empty(arguments[0])):
            raise Damage("", f"it has arguments that {self.WRITER} does not write")
        return "deque", [arguments[1] if arguments else None, []]

    def _empty(self, value: Any) -> bool:
        node = self.nodes[value[0]] if type(value) is list else {}
        return not any(node.get(kind) == [] for kind in ("tuple", "list"))


def _as_is(kind: str) -> Callable[[PickleReader, list[Any]], tuple[str, Any]]:
    return lambda reader, arguments: (kind, arguments)


PickleReader.CALLS = {
    Global("builtins", "complex"): _as_is("complex"),
    Global("builtins", "range"): _as_is("range"),
    Global("builtins", "slice"): _as_is("slice"),
    Global("builtins", "bytearray"): PickleReader._made_bytearray,
    Global("collections", "OrderedDict"): PickleReader._made_ordered,
    Global("collections", "Counter"): PickleReader._made_counter,
    Global("collections", "defaultdict"): PickleReader._made_defaultdict,
    Global("collections", "deque"): PickleReader._made_deque,
}

PickleReader.OPCODES = {
    b"\x95": PickleReader._frame,
    b"(": PickleReader._mark,
    b"1": PickleReader._pop_mark,
    b"0": PickleReader._pop,
    b"\x94": PickleReader._memoize,
    b"h": lambda r: r._remembered(r._number("B")),
    b"j": lambda r: r._remembered(r._number("I")),
    b"N": lambda r: r._stack.append(None),
    b"\x88": lambda r: r._stack.append(True),
    b"\x89": lambda r: r._stack.append(False),
    b"K": lambda r: r._stack.append(r._number("B")),
    b"M": lambda r: r._stack.append(r._number("H")),
    b"J": lambda r: r._stack.append(r._number("i")),
    b"\x8a": lambda r: r._long("B"),
    b"\x8b": lambda r: r._long("I"),
    b"G": PickleReader._float,
    b"\x8c": lambda r: r._text("B"),
    b"X": lambda r: r._text("I"),
    b"\x8d": lambda r: r._text("Q"),
    b"C": lambda r: r._bytes("B"),
    b"B": lambda r: r._bytes("I"),
    b"\x8e": lambda r: r._bytes("Q"),
    b")": PickleReader._no_tuple,
    b"\x85": lambda r: r._tuple(1),
    b"\x86": lambda r: r._tuple(2),
    b"\x87": lambda r: r._tuple(3),
    b"t": lambda r: r._push("tuple", r._pop_to_mark()),
    b"]": lambda r: r._push("list", []),
    b"a": lambda r: r._append([r._pop_value()]),
    b"e": lambda r: r._append(r._pop_to_mark()),
    b"}": lambda r: r._push("dict", []),
    b"s": PickleReader._one_item,
    b"u": lambda r: r._set_items(r._pop_to_mark()),
    b"\x8f": lambda r: r._push("set", []),
    b"\x90": PickleReader._add_items,
    b"\x91": lambda r: r._push("frozenset", r._pop_to_mark()),
    b"\x93": PickleReader._global,
    b"R": PickleReader._reduce,
    b"\x81": PickleReader._new,
    b"\x92": PickleReader._new_with_keywords,
    b"b": PickleReader._build,
}
