"""The memory behind arrays, as storages see it."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.memory_spans import address, bytes_between, span
from coredispatch.registry.model.errors import OpError

__all__ = ["Bytes", "memory_of", "new_bytes", "strided"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def owner_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that an array is a view of, directly or through others; itself if of none."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def memory_of(array: np.ndarray[Any, Any]) -> Bytes:
    """All bytes of the array that `array` is a view of; they share its memory."""
    owner = owner_of(array)
    if owner.dtype == np.uint8 and owner.ndim == 1 and owner.flags.c_contiguous:
        return owner
    if not owner.size:
        return np.empty(0, np.uint8)
    low, high = span(owner)
    return bytes_between(low, high, owner, owner.flags.writeable)


def new_bytes(size: int) -> Bytes:
    """Fresh memory, aligned for every element type, with contents of no meaning."""
    return np.empty(size, np.uint8)


def strided(
    memory: Bytes,
    dtype: np.dtype[Any],
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    what: str,
) -> np.ndarray[Any, Any]:
    """An array inside `memory`; offset and strides are in elements.

    Raises:
        OpError: a length, stride or offset is negative, or elements lie outside the memory.
    """
    if len(shape) != len(strides):
        raise OpError(f"{what}: {len(shape)} sizes have {len(strides)} strides")
    if min((offset, *shape, *strides), default=0) < 0:
        raise OpError(
            f"{what}: sizes {list(shape)}, strides {list(strides)} and storage offset {offset} "
            "must not be negative"
        )
    if 0 in shape:
        return np.empty(shape, dtype)
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides))
    if (last + 1) * dtype.itemsize > memory.size:
        raise OpError(
            f"{what}: sizes {list(shape)}, strides {list(strides)} and storage offset {offset} of "
            f"{dtype.name} need {(last + 1) * dtype.itemsize} bytes, the storage has {memory.size}",
            fix="the memory of a storage does not grow: make a larger tensor and copy into it",
        )
    steps = tuple(step * dtype.itemsize for step in strides)
    return np.ndarray(shape, dtype, memory, offset * dtype.itemsize, steps)


def first_address(memory: Bytes) -> int:
    """Address of the first byte, 0 of no bytes."""
    return address(memory) if memory.size else 0
