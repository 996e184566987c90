"""``cd.save``: an object's structure is pickled, its tensors become records and blocks."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.frontend.serialization.blocks import BlockWriter
from coredispatch.frontend.serialization.container import (
    Target,
    open_for_writing,
    write_archive,
)
from coredispatch.frontend.serialization.errors import SerializationError
from coredispatch.frontend.serialization.memory import attributes, host_array
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType

__all__ = ["save"]


def save(obj: Any, f: Target) -> None:
    """Write an object with tensors to a file.

    Args:
        obj: tensors, numbers, strings and containers of them, such as a ``state_dict``; anything
            else that pickles is written too, but only ``load(weights_only=False)`` reads it.
        f: a path, or a binary file opened for writing. A path is replaced in one step, when
            everything is written.

    Tensors keep dtype, shape, strides, device, layout, requires_grad and their attributes; those
    that share memory on the CPU are written once and share it again when loaded. The memory of a
    slice that shares with nothing else in the file is written without the rest of the array.

    Raises:
        SerializationError: a tensor of a layout whose plugin cannot save it.
    """
    structure = io.BytesIO()
    saver = _Saver(structure)
    saver.dump(obj)
    records, blocks = saver.finish()
    with open_for_writing(f) as file:
        write_archive(file, structure.getvalue(), records, blocks)


class _Saver(pickle.Pickler):
    """Pickles the structure; tensors and arrays become references into the list of records."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 4)  # readable by every Python this project supports
        self.writer = BlockWriter()
        self.records: list[dict[str, Any]] = []
        self.arrays: list[tuple[dict[str, Any], int]] = []  # records that the writer completes
        self.numbers: dict[int, int] = {}
        self.kept: list[Any] = []  # what has an id in `numbers` must live until the end

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            known = id(obj) in self.numbers
            reference = ("tensor", self._number(obj, self._tensor))
            extra = attributes(obj)
            return (*reference, extra) if extra and not known else reference
        if isinstance(obj, np.ndarray | np.generic) and obj.dtype.kind not in "OV":
            return ("tensor", self._number(obj, self._array))
        if isinstance(obj, DType):
            return ("dtype", obj.name)
        if isinstance(obj, Device):
            return ("device", str(obj))
        if isinstance(obj, Size):
            return ("size", tuple(obj))
        return None

    def _number(self, obj: Any, record: Callable[[Any], dict[str, Any]]) -> int:
        number = self.numbers.get(id(obj))
        if number is None:
            number = self.numbers[id(obj)] = len(self.records)
            self.kept.append(obj)
            self.records.append({})
            self.records[number].update(record(obj))
        return number

    def _store(self, record: dict[str, Any], array: np.ndarray[Any, Any]) -> dict[str, Any]:
        self.arrays.append((record, self.writer.add(array)))
        return record

    def _array(self, obj: Any) -> dict[str, Any]:
        kind = "array" if isinstance(obj, np.ndarray) else "scalar"
        return {"kind": kind, "array": self._store({}, np.asarray(obj))}

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        record: dict[str, Any] = {
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
        return record | {"array": self._store({}, host_array(tensor))}

    def _parts(self, tensor: Tensor) -> dict[str, Any]:
        layout = TABLE.snapshot.layouts[tensor.layout][0]
        if layout.pack is None:
            raise SerializationError(
                f"tensors of layout {tensor.layout!r} cannot be saved: its plugin does not say how",
                fix="save a dense copy, or ask for `pack` and `unpack` in the plugin's Layout",
            )
        backend = tensor.backend
        parts: dict[str, Any] = {}
        for name, part in layout.pack(tensor.raw).items():
            if isinstance(part, backend.array_type):
                parts[name] = {"array": self._store({}, backend.to_numpy(part))}
            else:
                parts[name] = {"value": part}
        return parts

    def finish(self) -> tuple[list[dict[str, Any]], list[Any]]:
        """The completed records and the blocks they refer to."""
        placed, blocks = self.writer.finish()
        for record, number in self.arrays:
            record.update(placed[number])
        return self.records, blocks


def _class_name(cls: type) -> list[str]:
    # The framework's own classes by name alone: files outlive the place of a class in the code.
    return (
        [cls.__name__]
        if cls.__module__.startswith("coredispatch.")
        else [
            cls.__module__,
            cls.__qualname__,
        ]
    )
