"""Files of the format safetensors: https://huggingface.co/docs/safetensors, section "Format".

Eight bytes with the length of the header, the header (JSON: a name, then ``dtype``, ``shape`` and
``data_offsets``), and the elements in row-major order, one tensor after the other without gaps.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import IO, Any, Final

import numpy as np

from coredispatch.backends.dtypes import element_name
from coredispatch.frontend.serialization.blocks import element_count, read_shape
from coredispatch.frontend.serialization.element_types import dtype_named, only_valid_elements
from coredispatch.frontend.serialization.errors import Damage, SerializationError, shown
from coredispatch.frontend.serialization.memory import host_array
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.sizes import contiguous_strides

__all__ = ["SafetensorsArchive", "looks_like", "write"]

Array = np.ndarray[Any, Any]

_LENGTH: Final = struct.Struct("<Q")
_LONGEST: Final = 100_000_000  # bytes of a header, as the library has it
_DTYPES: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}


def looks_like(start: bytes) -> bool:
    """Whether a file that begins with these bytes may be one."""
    if len(start) < _LENGTH.size + 2:
        return False
    return _LENGTH.unpack_from(start)[0] <= _LONGEST and start[_LENGTH.size : 9] == b"{"


class SafetensorsArchive:
    """A file opened for reading: see :class:`.container.Archive` for the attributes.

    Attributes:
        metadata: texts that the file's writer added.

    Raises:
        Damage: it is cut off or damaged.
    """

    version = 2
    structure_place = "the header"
    records_place = "the header, tensors"

    def __init__(self, file: IO[bytes], memory: Array | None = None) -> None:
        self._file, self._memory = file, memory
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        self._start = _LENGTH.size + length
        if self._start > end:
            raise Damage("the header", "the file ends inside it")
        header = _header(file.read(length))
        self.structure_size = length
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or any(type(v) is not str for v in metadata.values()):
            raise Damage("the header", "__metadata__ is not an object of texts")
        self.metadata: dict[str, str] = metadata
        self.records: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self._places: list[int] = []
        pairs: list[Any] = []
        nodes: list[Any] = [{"dict": pairs}]
        for name, entry in header.items():
            self._add(name, entry)
            nodes += [{"str": name}, {"tensor": len(self.records) - 1}]
            pairs.append([[len(nodes) - 2], [len(nodes) - 1]])
        self._check_places(end - self._start)
        self._structure = {"root": [0], "nodes": nodes}
        self._blocks: dict[int, Array] = {}

    def _add(self, name: str, entry: Any) -> None:
        where = f"the header, {shown(name)}"
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise Damage(where, f"{shown(entry)} does not describe a tensor")
        known = isinstance(entry["dtype"], str) and _DTYPES.get(entry["dtype"])
        dtype = dtype_named(known) if known else None
        if dtype is None:
            raise Damage(where, f"{shown(entry['dtype'])} is not an element type of coredispatch")
        shape = read_shape(entry["shape"], dtype.itemsize, where)
        offsets = entry["data_offsets"]
        if not isinstance(offsets, list) or [type(n) for n in offsets] != [int, int]:
            raise Damage(where, f"{shown(offsets)} are not two places")
        size = element_count(shape) * dtype.itemsize
        if offsets[1] - offsets[0] != size or offsets[0] < 0:
            raise Damage(where, f"bytes {shown(offsets)} do not hold {size} bytes of elements")
        strides = [step * dtype.itemsize for step in contiguous_strides(shape)]
        place: dict[str, Any] = {"dtype": known, "shape": list(shape), "strides": strides}
        place |= {"block": len(self.sizes) if size else -1, "offset": 0}
        self.records.append(
            {
                "kind": "tensor",
                "class": ["Tensor"],
                "device": "cpu",
                "requires_grad": False,
                "array": place,
            }
        )
        if size:
            self.sizes.append(size)
            self._places.append(offsets[0])

    def _check_places(self, available: int) -> None:
        position = 0
        for place, size in sorted(zip(self._places, self.sizes)):
            if place != position:
                raise Damage("the header", f"tensors overlap or leave a gap at byte {position}")
            position += size
        if position != available:
            raise Damage("the end", f"the tensors have {position} bytes, the file {available}")

    def structure(self) -> Any:
        """A dict from names to tensors, as nodes."""
        return self._structure

    def block(self, number: int) -> Array:
        """Block `number` as writable bytes; the same array each time."""
        if number not in self._blocks:
            start, size = self._start + self._places[number], self.sizes[number]
            if self._memory is not None:
                self._blocks[number] = self._memory[start : start + size]
            else:
                self._file.seek(start)
                data = bytearray(self._file.read(size))
                if len(data) != size:
                    raise Damage(f"tensor {number}", "the file ends inside it")
                self._blocks[number] = np.frombuffer(data, np.uint8)
        return self._blocks[number]


def _header(data: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands twice")
        return found

    try:
        header = json.loads(data.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise Damage("the header", str(error)[:200]) from error
    if not isinstance(header, dict):
        raise Damage("the header", "it is not an object")
    return header


def write(file: IO[bytes], obj: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write a dict from names to tensors.

    Raises:
        SerializationError: it is something else, or a tensor that the format does not have.
    """
    if not isinstance(obj, Mapping) or any(type(name) is not str for name in obj):
        raise SerializationError(
            f"save(format='safetensors') writes a dict from names to tensors, not {shown(obj)}",
            fix="save a state_dict(), or use another format",
        )
    if metadata is not None and any(type(x) is not str for p in metadata.items() for x in p):
        raise SerializationError("save: the metadata of a safetensors file are texts")
    arrays: list[tuple[str, Array, str]] = []
    for name, value in obj.items():
        arrays.append((name, *_checked(name, value)))
    # Large elements first, as the library does, so that each tensor is aligned.
    arrays.sort(key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for name, array, kind in arrays:
        end = position + array.nbytes
        header[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    file.write(_LENGTH.pack(len(text)) + text)
    for _, array, _ in arrays:
        # Copied where it is not contiguous: the bytes of a view are not those of its elements.
        contiguous = np.ascontiguousarray(array)
        file.write(contiguous.reshape(-1).view(np.uint8).data)


def _checked(name: str, value: Any) -> tuple[Array, str]:
    if not isinstance(value, Tensor | np.ndarray):
        raise SerializationError(
            f"save: {shown(name)} is a {type(value).__name__}; a safetensors file holds tensors"
        )
    if isinstance(value, Tensor) and (value.layout != "strided" or value.is_meta):
        raise SerializationError(
            f"save: {shown(name)} is not a dense tensor, which is what safetensors files hold",
            fix="save x.to_dense(), or use another format",
        )
    array = host_array(value) if isinstance(value, Tensor) else value
    kind = _NAMES.get(element_name(array.dtype))
    if kind is None or not array.dtype.isnative:
        raise SerializationError(
            f"save: {shown(name)} has elements of type {array.dtype}, which safetensors lacks",
            fix="convert it, or use another format",
        )
    if not only_valid_elements(array):
        raise SerializationError(f"save: {shown(name)} has a bool that is neither 0 nor 1")
    if array.dtype.itemsize > 1 and not np.dtype("<u2").isnative:
        array = array.byteswap()
    return array, kind
