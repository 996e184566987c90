"""Memory of NumPy arrays as blocks of bytes, each byte once however many arrays share it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from coredispatch.frontend.memory_spans import address, bytes_between, span
from coredispatch.frontend.serialization.element_types import dtype_named, dtype_text
from coredispatch.frontend.serialization.errors import Damage, shown

__all__ = [
    "ALIGNMENT",
    "ArrayPlace",
    "BlockWriter",
    "array_at",
    "check_layout_of_blocks",
    "element_count",
    "read_place",
    "read_shape",
]

Array = np.ndarray[Any, Any]
Block = list[bytes | Array]
ALIGNMENT: Final = 16
_LARGEST: Final = 2**63 - 1
_MAX_DIMS: Final = 64  # NumPy's


class ArrayPlace(NamedTuple):
    """Where an array lies: sizes in bytes, block -1 for an array without elements."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: int
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, also of those that share memory."""
        return element_count(self.shape) * self.dtype.itemsize

    @property
    def bounds(self) -> tuple[int, int]:
        """First byte in the block, and the one after the last. For arrays with elements."""
        reach = [(n - 1) * step for n, step in zip(self.shape, self.strides)]
        low = self.offset + sum(step for step in reach if step < 0)
        return low, self.offset + sum(s for s in reach if s > 0) + self.dtype.itemsize


def element_count(shape: Iterable[int]) -> int:
    """Number of elements, in Python's integers, which do not wrap around."""
    count = 1
    for length in shape:
        count *= length
    return count


def read_shape(value: Any, itemsize: int, place: str) -> tuple[int, ...]:
    """A list of lengths as a shape that NumPy can have.

    Raises:
        Damage: it is no such list, or no memory holds that many elements.
    """
    shape = _integers(value, place)
    if len(shape) > _MAX_DIMS or min(shape, default=0) < 0:
        raise Damage(place, f"{shown(value)} is not a shape")
    if element_count(n for n in shape if n) * itemsize > _LARGEST:
        raise Damage(place, f"no memory holds an array of shape {shape}")
    return shape


def _integers(value: Any, place: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(n) is int for n in value):
        raise Damage(place, f"{shown(value)} is not a list of integers")
    if any(abs(n) > _LARGEST for n in value):
        raise Damage(place, f"an integer in {shown(value)} does not fit 64 bits")
    return tuple(value)


def read_place(record: Any, sizes: list[int], place: str, numpy: bool = False) -> ArrayPlace:
    """The array that a record of the index describes, inside blocks of these sizes.

    Raises:
        Damage: the record does not describe an array that lies inside its block.
    """
    keys = {"dtype", "shape", "strides", "block", "offset"}
    if not isinstance(record, dict) or record.keys() != keys:
        raise Damage(place, f"{shown(record)} is not the record of an array")
    dtype = dtype_named(record["dtype"], numpy)
    if dtype is None:
        raise Damage(place, f"{shown(record['dtype'])} is not an element type that is saved")
    shape = read_shape(record["shape"], dtype.itemsize, f"{place}, shape")
    strides = _integers(record["strides"], f"{place}, strides")
    if len(strides) != len(shape):
        raise Damage(place, f"{len(shape)} lengths have {len(strides)} strides")
    block, offset = _integers([record["block"], record["offset"]], f"{place}, block and offset")
    found = ArrayPlace(dtype, shape, strides, block, offset)
    if 0 in shape:
        if block != -1 or offset:
            raise Damage(place, f"an array without elements lies in block {block}")
        return found
    if not 0 <= block < len(sizes):
        raise Damage(place, f"there is no block {block}")
    low, high = found.bounds
    if low < 0 or high > sizes[block]:
        raise Damage(
            place, f"bytes {low} to {high} are outside block {block} of {sizes[block]} bytes"
        )
    return found


def array_at(block: Array | None, place: ArrayPlace) -> Array:
    """The array at a place that was checked, sharing the block's memory."""
    if 0 in place.shape:
        return np.empty(place.shape, place.dtype)
    return np.ndarray(place.shape, place.dtype, block, place.offset, place.strides)


def check_layout_of_blocks(places: list[ArrayPlace], sizes: list[int], others: set[int]) -> None:
    """Whether the blocks are laid out as :class:`BlockWriter` does it.

    Raises:
        Damage: a block has bytes that belong to no array, arrays that share none of its bytes lie
            in it together, or an array that is alone in it overlaps itself. `others` are the
            blocks that hold no arrays.
    """
    members: dict[int, list[ArrayPlace]] = {}
    for place in places:
        if place.block >= 0:
            members.setdefault(place.block, []).append(place)
    for number, size in enumerate(sizes):
        what, group = f"block {number}", members.get(number, [])
        if (number in others) == bool(group):
            raise Damage(what, "it is used in two ways" if group else "nothing uses it")
        if not group:
            continue
        bounds = sorted(place.bounds for place in group)
        end = bounds[0][1]
        for low, high in bounds[1:]:
            if low >= end:
                raise Damage(what, "two of its arrays do not share memory")
            end = max(end, high)
        start = bounds[0][0]
        if start >= ALIGNMENT or end != size:
            raise Damage(what, "its arrays do not fill it")
        if len(group) == 1 and group[0].nbytes != end - start:
            raise Damage(what, "its only array overlaps itself or has gaps")


class BlockWriter:
    """Collects arrays and lays them out in blocks.

    Arrays whose memory overlaps come to lie in one block, so that they share memory again when
    they are loaded. An array that shares with no other is stored without the gaps between its
    elements, so a slice does not drag the array it was taken from into the file. Bytes that are
    no array's come first, in blocks of their own.
    """

    def __init__(self) -> None:
        self.arrays: list[Array] = []  # also keeps the memory alive
        self.texts: list[bytes] = []

    def add(self, array: Array) -> int:
        """Take in an array; returns its number."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def add_bytes(self, data: bytes) -> int:
        """Take in bytes; returns the number of their block."""
        self.texts.append(data)
        return len(self.texts) - 1

    def finish(self) -> tuple[list[dict[str, Any]], list[Block]]:
        """A record per array (dtype, shape, strides, block, offset; in bytes) and the blocks.

        A block is a list of buffers, to be written one after the other.
        """
        records: list[dict[str, Any]] = [{} for _ in self.arrays]
        blocks: list[Block] = [[text] for text in self.texts]
        for numbers, low, high in self._groups():
            if len(numbers) == 1:
                array = self.arrays[numbers[0]] = _without_gaps(self.arrays[numbers[0]])
                low, high = span(array)
            # Elements keep their alignment to the start of the block.
            padding = low % max(self.arrays[number].dtype.alignment for number in numbers)
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
                numbers.append(number)
                groups[-1] = (numbers, first, max(last, high))
            else:
                groups.append(([number], low, high))
        # Not by address: equal objects give equal files.
        return sorted(groups, key=lambda group: min(group[0]))


def _without_gaps(array: Array) -> Array:
    low, high = span(array)
    return array if high - low == array.nbytes else array.copy(order="K")


def _record(array: Array, block: int, offset: int) -> dict[str, Any]:
    return {
        "dtype": dtype_text(array.dtype),
        "shape": list(array.shape),
        "strides": list(array.strides),
        "block": block,
        "offset": offset,
    }
