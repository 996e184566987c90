"""The structure of version 1, a pickle that Python's pickler wrote at protocol 4."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.serialization.errors import Damage, shown
from coredispatch.frontend.serialization.pickle_reader import PickleReader

__all__ = ["PLACE", "read_pickle"]

PLACE = "structure.pkl"


def read_pickle(data: bytes) -> dict[str, Any]:
    """The structure that a pickle of version 1 stands for.

    Raises:
        Damage: it has an opcode, or an order of opcodes, that version 1 never wrote.
    """
    reader = _Version1(data)
    found = reader.read()
    if reader.position != len(data):
        raise Damage(PLACE, "it does not end with one object")
    return found


class _Version1(PickleReader):
    PLACE = PLACE
    WRITER = "version 1"

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._tensors: dict[Any, list[int]] = {}

    def _protocol(self) -> None:
        if self.position != 1 or self._take(1) != b"\x04":
            raise Damage("", "it is not a pickle of protocol 4")

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
                self.nodes[found[0]]["attributes"] = self._copied(rest[1], "dict")
            self._stack.append(found)
        else:
            raise Damage("", f"{shown(kind)} is not a kind of reference")


_Version1.OPCODES = PickleReader.OPCODES | {
    b"\x80": _Version1._protocol,
    b"Q": _Version1._reference,
}
