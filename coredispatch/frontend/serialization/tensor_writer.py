"""Tensors and arrays become records of ``format.json`` and blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.frontend.serialization.blocks import BlockWriter
from coredispatch.frontend.serialization.element_types import dtype_text, only_valid_elements
from coredispatch.frontend.serialization.errors import SerializationError, shown
from coredispatch.frontend.serialization.memory import attributes, host_array
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.spelling import SPELLING

__all__ = ["TensorWriter"]

Record = dict[str, Any]


class TensorWriter:
    """Collects the records of tensors and arrays, and the blocks that hold their elements."""

    def __init__(self) -> None:
        self._writer = BlockWriter()
        self._records: list[Record] = []
        self._arrays: list[tuple[Record, int]] = []  # records that the writer completes

    def add(self, obj: Any) -> tuple[str, int] | None:
        """The kind and number of the record; None for a NumPy array of other elements."""
        if isinstance(obj, Tensor):
            kind, record = "tensor", self._tensor(obj)
        elif isinstance(obj, np.ndarray | np.generic):
            # Subclasses (masked arrays, matrices) are more than their elements.
            if isinstance(obj, np.ndarray) and type(obj) is not np.ndarray:
                return None
            if dtype_text(obj.dtype) is None:
                return None
            kind = "array" if isinstance(obj, np.ndarray) else "scalar"
            record = {"kind": kind, "array": self._store(np.asarray(obj))}
        else:
            return None
        self._records.append(record)
        return kind, len(self._records) - 1

    def attributes(self, tensor: Tensor) -> dict[str, Any]:
        """What was set on the tensor as attributes."""
        return attributes(tensor)

    def add_bytes(self, data: bytes) -> int:
        """The number of the block that holds `data`."""
        return self._writer.add_bytes(data)

    def _store(self, array: np.ndarray[Any, Any]) -> Record:
        if dtype_text(array.dtype) is None:
            raise SerializationError(f"save: an array of element type {array.dtype} in a tensor")
        if not only_valid_elements(array):
            raise SerializationError(
                "save: a bool is neither 0 nor 1 in memory, or text is not made of characters",
                fix="make the array anew, for example with array != 0",
            )
        record: Record = {}
        self._arrays.append((record, self._writer.add(array)))
        return record

    def _tensor(self, tensor: Tensor) -> Record:
        if isinstance(tensor.raw, Wrapper):
            raise SerializationError(
                f"a tensor that the layer {tensor.raw.layer!r} wraps cannot be saved",
                fix="save the tensor inside: Wrapper.of(x).value",
            )
        record: Record = {
            "kind": "tensor",
            "class": _class_name(type(tensor)),
            "device": str(tensor.device),
            "requires_grad": tensor.requires_grad,
        }
        if tensor.layout != "strided":
            return record | {
                "kind": "layout",
                "layout": tensor.layout,
                "parts": self._parts(tensor),
            }
        if tensor.is_meta:
            return record | {
                "kind": "meta",
                "dtype": tensor.dtype.name,
                "shape": list(tensor.shape),
            }
        return record | {"array": self._store(host_array(tensor))}

    def _parts(self, tensor: Tensor) -> Record:
        layout = TABLE.snapshot.layouts[tensor.layout][0]
        if layout.pack is None:
            raise SerializationError(
                f"tensors of layout {tensor.layout!r} cannot be saved: its plugin does not say how",
                fix="save a dense copy, or ask for `pack` and `unpack` in the plugin's Layout",
            )
        backend = tensor.backend
        parts: Record = {}
        for name, part in layout.pack(tensor.raw).items():
            if isinstance(part, backend.array_type):
                parts[name] = {"array": self._store(backend.to_numpy(part))}
            elif _is_plain(part):
                parts[name] = {"value": part}
            else:
                raise SerializationError(
                    f"the layout {tensor.layout!r} packs {name!r} as {shown(part)}, which no file "
                    "can say",
                    fix="its plugin should pack arrays, finite numbers, strings and lists of them",
                )
        return parts

    def finish(self) -> tuple[list[Record], list[Any]]:
        """The completed records and the blocks they refer to."""
        placed, blocks = self._writer.finish()
        for record, number in self._arrays:
            record.update(placed[number])
        return self._records, blocks


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    if type(value) is float:
        return math.isfinite(value)
    return (
        value is None
        or type(value) in (bool, str)
        or (type(value) is int and -(1 << 63) <= value < 1 << 64)
    )


def _class_name(cls: type) -> list[str]:
    # The framework's own classes by name alone: files outlive the place of a class in the code.
    own = SPELLING.module_of(cls).startswith("coredispatch.")
    return [cls.__name__] if own else [cls.__module__, cls.__qualname__]
