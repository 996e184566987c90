"""Memory of NumPy arrays as blocks of bytes, each byte once however many arrays share it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import ml_dtypes  # noqa: F401  (makes np.dtype("bfloat16") known)
import numpy as np

from coredispatch.frontend.serialization.errors import Damage, shown
from coredispatch.registry.model.dtypes import ALL_DTYPES

__all__ = [
    "ALIGNMENT",
    "ArrayPlace",
    "BlockWriter",
    "address",
    "array_at",
    "bytes_between",
    "check_layout_of_blocks",
    "dtype_named",
    "dtype_text",
    "element_count",
    "only_valid_elements",
    "read_place",
    "read_shape",
    "span",
]

Array = np.ndarray[Any, Any]
Block = list[bytes | Array]
ALIGNMENT: Final = 16
_LARGEST: Final = 2**63 - 1
_MAX_DIMS: Final = 64  # NumPy's


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


def address(array: Array) -> int:
    """Address of the element with all indices 0."""
    # Not the low end of the span where a stride is negative.
    return int(array.__array_interface__["data"][0])


# -- element types ---------------------------------------------------------------------------

#: what tensors and arrays have: coredispatch's own element types, by name and by NumPy's text
_NATIVE: Final = {dtype.name: np.dtype(dtype.name) for dtype in ALL_DTYPES}
_BY_TEXT: Final = {**_NATIVE, **{d.str: d for d in _NATIVE.values() if d.isbuiltin == 1}}
_SWAPPED: Final = {
    d.newbyteorder().str: d.newbyteorder() for d in _BY_TEXT.values() if d.isbuiltin == 1
}
#: what NumPy arrays may have besides: text, bytes, dates and differences of dates
_OTHER: Final = re.compile(
    r"[<>]U[1-9]\d{0,8}|\|S[1-9]\d{0,8}|[<>][mM]8(\[\d{0,9}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)


def dtype_text(dtype: np.dtype[Any]) -> str | None:
    """How a file names an element type; None for one that no file has."""
    name = dtype.name if dtype.isnative and dtype.name in _NATIVE else dtype.str
    return name if dtype_named(name, numpy=True) is not None else None


def dtype_named(text: Any, numpy: bool = False) -> np.dtype[Any] | None:
    """The element type of that name, with `numpy` also those that no tensor has; else None."""
    if not isinstance(text, str):
        return None
    found = _BY_TEXT.get(text)
    if found is None and numpy:
        found = _SWAPPED.get(text)
        if found is None and _OTHER.fullmatch(text):
            found = np.dtype(text)
    return found


def only_valid_elements(array: Array) -> bool:
    """Whether all bytes mean something: kernels rely on a bool being 0 or 1.

    Text must consist of characters; all other types have no invalid elements.
    """
    if array.dtype.kind not in "bU" or not array.size:
        return True
    # An expanded array has more elements than bytes: look at each byte once.
    array = array[tuple(slice(None) if step else slice(1) for step in array.strides)]
    low, high = span(array)
    if array.dtype.kind == "b":
        memory = (
            array.view(np.uint8) if array.size <= high - low else bytes_between(low, high, array)
        )
        return int(memory.max()) <= 1
    if array.nbytes > high - low:
        return False
    flat = np.ascontiguousarray(array).reshape(-1)
    return int(flat.view(flat.dtype.str[0] + "u4").max()) <= 0x10FFFF


# -- places of arrays in blocks --------------------------------------------------------------


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
