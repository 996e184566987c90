"""Batches in page-locked memory, part by part."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """``data`` with ``pin_memory()`` called on all that has it, through dicts and sequences.

    Containers keep their classes; where one cannot be made anew, the parts come in a dict or a
    list. Tensors refuse where there is no device that copies from such memory.
    """
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        pinned = {key: pin_memory(value, device) for key, value in data.items()}
        try:
            if isinstance(data, MutableMapping):
                made = copy.copy(data)
                made.update(pinned)
                return made
            return type(data)(pinned)  # type: ignore[call-arg]
        except TypeError:
            return pinned
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(part, device) for part in data))
    if isinstance(data, tuple):
        return type(data)(pin_memory(part, device) for part in data)
    if isinstance(data, Sequence):
        parts = [pin_memory(part, device) for part in data]
        try:
            if isinstance(data, MutableSequence):
                listed = copy.copy(data)
                listed[:] = parts
                return listed
            return type(data)(parts)  # type: ignore[call-arg]
        except TypeError:
            return parts
    return data
