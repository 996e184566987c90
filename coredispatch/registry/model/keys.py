"""Named keys and their order.

A key is one bit of a key set. There are three kinds, from the bottom up: *backend* keys
(``cpu``, ``cuda``, ``meta``), *layout* keys (``sparse_csr``, ``quantized``) and *layer* keys
(``autograd``, ``autocast``). Within a kind the order is declared with ``above``/``below``
and never depends on load order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from coredispatch.registry.model.errors import RegistrationError

__all__ = ["Key", "KeyKind", "KeyOrder"]

KeyKind = Literal["backend", "layout", "layer"]
#: the bit of every key that was ever named in this process (filled by the table)
BITS: dict[str, int] = {}
_RANK: dict[str, int] = {"backend": 0, "layout": 1, "layer": 2}


@dataclass(frozen=True)
class Key:
    """One named bit. ``above`` and ``below`` name other keys of the same kind; ``below=("*",)`` is
    below all of them."""

    name: str
    kind: KeyKind
    bit: int
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    plugin: str = "coredispatch"

    def __repr__(self) -> str:
        return f"<{self.kind} key {self.name}>"


class KeyOrder:
    """An immutable set of keys with their total order, highest first."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self.by_name: dict[str, Key] = {key.name: key for key in keys}
        self.highest_first: tuple[Key, ...] = tuple(_sorted(list(self.by_name.values())))
        self.backend_bits = self._bits("backend")
        self.layout_bits = self._bits("layout")
        self.layer_bits = self._bits("layer")

    def _bits(self, kind: str) -> int:
        bits = 0
        for key in self.by_name.values():
            if key.kind == kind:
                bits |= key.bit
        return bits

    def members(self, keys: int) -> Iterator[Key]:
        """The keys of the set ``keys``, highest first."""
        return (key for key in self.highest_first if key.bit & keys)

    def names(self, keys: int) -> tuple[str, ...]:
        """The names of the set ``keys``, highest first, then those of keys not loaded."""
        known = [key.name for key in self.members(keys)]
        return (*known, *(f"<{name}, not loaded>" for name in self.absent(keys)))

    def absent(self, keys: int) -> list[str]:
        """The names of keys in the set whose plugin is not loaded."""
        for key in self.members(keys):
            keys &= ~key.bit
        return [name for name, bit in BITS.items() if bit & keys]

    def from_above(self, key: Key) -> int:
        """Bits of ``key`` and of every layer or layout above it."""
        bits = 0
        for other in self.highest_first:
            bits |= other.bit
            if other is key:
                return bits
        raise KeyError(key.name)


def _sorted(keys: list[Key]) -> list[Key]:
    """Order keys by kind, then by declared constraints, then by name (never by load order)."""
    result: list[Key] = []
    for kind in ("layer", "layout", "backend"):
        result += _topological([key for key in keys if key.kind == kind])
    return result


def _topological(keys: list[Key]) -> list[Key]:
    names = {key.name for key in keys}
    lower: dict[str, set[str]] = {key.name: set() for key in keys}
    for key in keys:
        lower[key.name].update(name for name in key.above if name in names)
        if "*" in key.above:  # above all that do not say so as well
            lower[key.name].update(other.name for other in keys if "*" not in other.above)
        if "*" in key.below:  # below all that do not say so as well
            for other in keys:
                if "*" not in other.below:
                    lower[other.name].add(key.name)
        for name in key.below:
            if name in names:
                lower[name].add(key.name)
    by_name = {key.name: key for key in keys}
    ascending: list[Key] = []
    remaining = dict(lower)
    while remaining:
        # The alphabetically last free key goes lowest, so that ties read A..Z from the top.
        free = [n for n, below in remaining.items() if not (below & remaining.keys())]
        if not free:
            cycle = ", ".join(sorted(remaining))
            raise RegistrationError(
                f"the declared order of the keys {cycle} is a cycle",
                fix="remove one of their above=/below= declarations",
            )
        lowest = max(free)
        ascending.append(by_name[lowest])
        del remaining[lowest]
    return ascending[::-1]


def rank(kind: str) -> int:
    """0 for backend, 1 for layout, 2 for layer."""
    return _RANK[kind]
