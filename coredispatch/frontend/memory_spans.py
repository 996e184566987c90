"""The memory that an array covers, by address, together with its owner."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["address", "bytes_between", "owner_behind", "span"]

Array = np.ndarray[Any, Any]


def span(array: Array) -> tuple[int, int]:
    """First address of the array's elements, and the address after the last one."""
    return np.lib.array_utils.byte_bounds(array)


class _OwnedMemory:
    """A range of addresses together with the objects that keep it allocated.

    NumPy makes this object the base of every array over the memory, so such an array, and
    any view of one, holds the owner as well.
    """

    def __init__(self, low: int, high: int, owner: Any, writeable: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (low, not writeable),
            "shape": (high - low,),
            "typestr": "|u1",
            "version": 3,
        }


def bytes_between(low: int, high: int, owner: Any, writeable: bool = False) -> Array:
    """The memory from address `low` to `high`, which `owner` keeps allocated, as bytes.

    The array and all its views hold `owner`.
    """
    return np.asarray(_OwnedMemory(low, high, owner, writeable))


def address(array: Array) -> int:
    """Address of the element with all indices 0."""
    # Not the low end of the span where a stride is negative.
    return int(array.__array_interface__["data"][0])


def owner_behind(array: Array) -> Any:
    """What keeps the memory of an array allocated: the last array of those that it is a view of,
    or the owner that :func:`bytes_between` was given.
    """
    owner: Any = array
    while True:
        if isinstance(owner, np.ndarray) and owner.base is not None:
            owner = owner.base
        elif isinstance(owner, _OwnedMemory):
            owner = owner.owner
        else:
            return owner
