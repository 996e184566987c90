"""Memory of NumPy arrays as blocks of bytes, each byte once however many arrays share it."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (makes np.dtype("bfloat16") known)
import numpy as np

__all__ = ["BlockWriter", "address", "array_in", "bytes_between", "span"]

Array = np.ndarray[Any, Any]
Block = list[bytes | Array]
_ALIGNMENT = 16


def span(array: Array) -> tuple[int, int]:
    """First address of the array's elements, and the address after the last one."""
    return np.lib.array_utils.byte_bounds(array)


class _OwnedMemory:
    """A range of addresses together with the objects that keep it allocated.

    NumPy makes this object the base of every array over the memory, so whoever holds such an
    array, or a view of one, holds the owner as well.
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


def array_in(block: Array, record: dict[str, Any]) -> Array:
    """The array that `record` describes, sharing the block's memory.

    Raises:
        ValueError: the record reaches outside the block.
    """
    dtype, shape = np.dtype(record["dtype"]), tuple(record["shape"])
    if dtype.hasobject:
        raise ValueError(f"dtype {dtype} holds pointers")
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.ndarray(
        shape, dtype, buffer=block, offset=record["offset"], strides=tuple(record["strides"])
    )


class BlockWriter:
    """Collects arrays and lays them out in blocks.

    Arrays whose memory overlaps come to lie in one block, so that they share memory again when
    they are loaded. An array that shares with no other is stored without the gaps between its
    elements, so a slice does not drag the array it was taken from into the file.
    """

    def __init__(self) -> None:
        self.arrays: list[Array] = []  # also keeps the memory alive

    def add(self, array: Array) -> int:
        """Take in an array; returns its number."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def finish(self) -> tuple[list[dict[str, Any]], list[Block]]:
        """A record per array (dtype, shape, strides, block, offset; in bytes) and the blocks.

        A block is a list of buffers, to be written one after the other.
        """
        records: list[dict[str, Any]] = [{} for _ in self.arrays]
        blocks: list[Block] = []
        for numbers, low, high in self._groups():
            if len(numbers) == 1:
                array = self.arrays[numbers[0]] = _without_gaps(self.arrays[numbers[0]])
                low, high = span(array)
            # Elements keep their alignment to the start of the block.
            padding = low % _ALIGNMENT
            for number in numbers:
                member = self.arrays[number]
                records[number] = _record(member, len(blocks), address(member) - low + padding)
            owners = [self.arrays[number] for number in numbers]
            blocks.append([bytes(padding), bytes_between(low, high, owners)])
        for number, record in enumerate(records):
            if not record:
                records[number] = _record(self.arrays[number], -1, 0)
        return records, blocks

    def _groups(self) -> list[tuple[list[int], int, int]]:
        """Numbers of the arrays whose memory overlaps, with the span they cover together."""
        spans = [(*span(array), number) for number, array in enumerate(self.arrays) if array.size]
        groups: list[tuple[list[int], int, int]] = []
        for low, high, number in sorted(spans):
            if groups and low < groups[-1][2]:
                numbers, first, last = groups[-1]
                groups[-1] = ([*numbers, number], first, max(last, high))
            else:
                groups.append(([number], low, high))
        return groups


def _without_gaps(array: Array) -> Array:
    low, high = span(array)
    return array if high - low == array.nbytes else array.copy(order="K")


def address(array: Array) -> int:
    """Address of the element with all indices 0."""
    # Not the low end of the span where a stride is negative.
    return int(array.__array_interface__["data"][0])


def _dtype_text(dtype: np.dtype[Any]) -> str:
    # Names of dtypes registered by ml_dtypes; everything else by NumPy's type string, which
    # also tells lengths and byte order.
    return dtype.name if dtype.isbuiltin == 2 else dtype.str


def _record(array: Array, block: int, offset: int) -> dict[str, Any]:
    return {
        "dtype": _dtype_text(array.dtype),
        "shape": list(array.shape),
        "strides": list(array.strides),
        "block": block,
        "offset": offset,
    }
