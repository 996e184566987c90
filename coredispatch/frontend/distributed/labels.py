"""What the messages of a call say about it, in few bytes: for ranks that call differently."""

from __future__ import annotations

from struct import Struct
from typing import Any

import numpy as np

from coredispatch.frontend.distributed.communicator import Communicator

__all__ = ["WIDTH", "differing", "label"]

_NAMES = ("send", "barrier", "broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter",
          "gather", "scatter", "all_to_all")  # fmt: skip
_NUMBER_OF = {name: number for number, name in enumerate(_NAMES)}
_OPERATIONS = ("", *Communicator.operations)
_OPERATION_OF = {name: number for number, name in enumerate(_OPERATIONS)}
#: call, operation, kind and width of the dtype; root, number of the call, number of elements
_LABEL = Struct("<BBBBiqq")
WIDTH = _LABEL.size


def label(
    name: str, array: Any = None, *, op: str = "", root: int = -1, number: int = 0, count: int = -1
) -> bytes:
    """The label of a call, which is the same on all ranks that call it alike.

    Args:
        number: how many collectives of the group came before, and this one.
        count: elements that all ranks must have in common; -1 where each has its own.
    """
    dtype = None if array is None else array.dtype
    kind, width = (0, 0) if dtype is None else (ord(dtype.kind), dtype.itemsize)
    return _LABEL.pack(_NUMBER_OF[name], _OPERATION_OF[op], kind, width, root, number, count)


def differing(rank: int, own: bytes, other: int, its: bytes) -> str:
    """What an error says where two ranks of a group call differently."""
    mine, theirs = _LABEL.unpack(own), _LABEL.unpack(its)
    if mine[0] == theirs[0] == 0:
        return (
            f"rank {other} of the group sent {_dtype(theirs)}, and rank {rank} receives "
            f"{_dtype(mine)}\n  fix: receive into a tensor of the dtype that is sent"
        )
    apart = mine[5] != theirs[5]
    return (
        "the ranks call differently:\n"
        f"  rank {rank} of the group: {_text(mine, apart)}\n"
        f"  rank {other} of the group: {_text(theirs, apart)}\n"
        "  fix: all ranks must call the same collectives, in the same order, with the same shapes, "
        "dtypes and arguments; DISTRIBUTED_DEBUG=DETAIL says more"
    )


def _dtype(call: tuple[int, ...]) -> str:
    return str(np.dtype(f"{chr(call[2])}{call[3]}"))


def _text(call: tuple[int, ...], numbered: bool) -> str:
    name, op, kind, _, root, number, count = call
    text = _NAMES[name]
    if kind:
        elements = "" if count < 0 else f"{count} elements of "
        text += f" of {elements}{_dtype(call)}"
    if root >= 0:
        text += f", root {root}"
    if op:
        text += f", {_OPERATIONS[op]}"
    return text + (f", collective {number} of the group" if numbered else "")
