"""What the ranks of one machine are about to call, for all of them to see.

Each rank counts its calls and leaves the particulars of the last ones in shared memory before MPI
begins. When a message of another rank has come, its particulars are there as well (on processors
that keep the order of stores), so they are compared without waiting for anybody. MPI itself says
nothing when a message is shorter than what it fills, and sometimes nothing when it is longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import numpy as np

from coredispatch.plugin import Communicator

__all__ = ["KEPT", "WIDTH", "Calls", "Check"]

KEPT = 16  # calls of each rank: one that only sends may be that far ahead of those that receive
WIDTH = 16  # numbers of a call
_NAMES = ("barrier", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter",
          "all_to_all")  # fmt: skip
_OPERATIONS = {name: number for number, name in enumerate(Communicator.operations)}
_NUMBER_OF = {name: number for number, name in enumerate(_NAMES)}
_MOST = 4  # ranks whose counts there is room for
_NO_COUNTS = (-1,) * _MOST
_CALL = Struct(f"={7 + 2 * _MOST}q")
_PARTICULARS = Struct(f"={6 + 2 * _MOST}q")  # without the number of the call

Check = Callable[[], None]


class Calls:
    """The calls of all ranks.

    Args:
        memory: ``(ranks, KEPT, WIDTH)`` numbers that all of them see, zero at the beginning.

    Attributes:
        trace: 7 bits that depend on the names, roots and operations of all calls so far, and their
            order. They tell ``all_reduce``, at which all ranks meet, of those that did not.
    """

    def __init__(self, memory: Any, rank: int) -> None:
        self._rank, self._number, self.trace = rank, 0, 0
        self._others = [other for other in range(len(memory)) if other != rank]
        # Views that write and read whole words, at less cost than an array does.
        self._bytes = memoryview(memory.reshape(-1).view(np.uint8))
        self._numbers = memoryview(memory.reshape(-1))[::WIDTH]

    def begin(
        self,
        name: str,
        array: Any = None,
        *,
        op: str = "",
        root: int = -1,
        counts: Sequence[int] = (),
        received: Sequence[int] = (),
    ) -> Check:
        """Tell the others of a call; what it returns raises ValueError where theirs do not fit.

        Args:
            array: what this rank sends, or receives into.
            counts: elements of each rank's part, the same on all ranks; of ``all_to_all`` those
                that go to each rank, and `received` those that come from it.
        """
        self._number = number = self._number + 1
        if array is None:
            kind = width = size = 0
        else:
            kind, width, size = ord(array.dtype.kind), array.dtype.itemsize, array.size
        call, operation = _NUMBER_OF[name], _OPERATIONS[op] if op else -1
        self.trace = (self.trace * 37 + call * 11 + root + operation + 17) & 127
        own = (
            call, kind, width, size, root, operation,
            *counts, *_NO_COUNTS[len(counts) :], *received, *_NO_COUNTS[len(received) :],
        )  # fmt: skip
        turn = number % KEPT
        row = self._rank * KEPT + turn
        self._numbers[row] = 0  # who reads an earlier call here sees that it is no longer the one
        _PARTICULARS.pack_into(self._bytes, (row * WIDTH + 1) * 8, *own)
        self._numbers[row] = number
        return lambda: self._compare((number, *own), turn)

    def _compare(self, own: tuple[int, ...], turn: int) -> None:
        name, root = _NAMES[own[1]], own[5]
        if name in ("broadcast", "scatter"):
            sources = [root] if root != self._rank else []
        elif name in ("reduce", "gather"):
            sources = self._others if root == self._rank else []
        else:
            sources = self._others
        for other in sources:
            row = other * KEPT + turn
            its = _CALL.unpack_from(self._bytes, row * WIDTH * 8)
            if self._numbers[row] == its[0] == own[0] and not self._fit(name, own, its, other):
                raise ValueError(
                    f"the ranks call {name} with different tensors or arguments:\n"
                    f"  rank {self._rank} of the group: {_text(own)}\n"
                    f"  rank {other} of the group: {_text(its)}\n"
                    "  fix: use shapes that fit, the same dtype and the same arguments on all ranks"
                )

    def _fit(self, name: str, own: tuple[int, ...], its: tuple[int, ...], other: int) -> bool:
        if its[1:4] != own[1:4] or its[5:7] != own[5:7]:  # name, dtype, root, operation
            return False
        sent, received = slice(7, 7 + _MOST), slice(7 + _MOST, 7 + 2 * _MOST)
        if name in ("broadcast", "reduce"):
            return its[4] == own[4]
        if name == "gather":
            return its[4] == own[sent][other]
        if name == "scatter":
            return its[sent][self._rank] == own[4]
        if name == "all_to_all":
            return (
                its[sent][self._rank] == own[received][other]
                and its[received][self._rank] == own[sent][other]
            )
        return its[sent] == own[sent]


def _text(call: tuple[int, ...]) -> str:
    """A call as an error shows it."""
    _, name, kind, width, count, root, op = call[:7]
    text = _NAMES[name]
    if kind:
        text += f" of {count} elements of {np.dtype(f'{chr(kind)}{width}')}"
    parts = [
        ("parts of", [c for c in call[7 : 7 + _MOST] if c >= 0]),
        ("for parts of", [c for c in call[7 + _MOST : 7 + 2 * _MOST] if c >= 0]),
    ]
    for what, counts in parts:
        if counts:
            text += f", {what} {', '.join(map(str, counts))}"
    if root >= 0:
        text += f", root {root}"
    if op >= 0:
        text += f", {list(_OPERATIONS)[op]}"
    return text
