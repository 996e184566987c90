"""bfloat16 and 8-bit floats through DLPack: NumPy, which makes and reads the capsules, has neither.

The elements travel as integers, and the element type in the capsule is rewritten on the way: its
layout is fixed by the DLPack specification (https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import OpError

__all__ = ["FOREIGN", "Capsule", "export", "read"]

_UINT = 1  # of DLDataTypeCode
#: the others' code by the element type; each has a width of its own
FOREIGN: dict[DType, int] = {
    DType.of(name): code
    for name, code in (
        ("bfloat16", 4),
        ("float8_e4m3fn", 10),
        ("float8_e4m3fnuz", 11),
        ("float8_e5m2", 12),
        ("float8_e5m2fnuz", 13),
        ("float8_e8m0fnu", 14),
    )
}
_NATIVE = {(code, 8 * dtype.itemsize): numpy_dtype(dtype) for dtype, code in FOREIGN.items()}


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):  # DLTensor, and the beginning of DLManagedTensor
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
    )


class _Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _element_type(capsule: Any) -> _DataType:
    """The element type inside a capsule that nobody has consumed yet."""
    name = _name_of(capsule)
    pointer = _pointer_of(capsule, name)
    assert pointer is not None
    if name == b"dltensor_versioned":
        return _Versioned.from_address(pointer).tensor.dtype  # type: ignore[no-any-return]
    return _Tensor.from_address(pointer).dtype  # type: ignore[no-any-return]


def export(array: np.ndarray[Any, Any], **options: Any) -> Any:
    """The capsule of an array of a :data:`FOREIGN` element type, of any strides; shares memory."""
    capsule = array.view(f"u{array.itemsize}").__dlpack__(**options)
    _element_type(capsule).code = FOREIGN[DType.of(array.dtype)]
    return capsule


class Capsule:
    """A capsule that nobody has consumed yet, as an exporter.

    Raises:
        OpError: it is no DLPack capsule, or was consumed before.
    """

    def __init__(self, capsule: Any) -> None:
        name = _name_of(capsule)
        if name not in (b"dltensor", b"dltensor_versioned"):
            raise OpError(
                f"from_dlpack(): the capsule is called {name.decode() if name else None!r}",
                fix="a capsule can be taken once: ask for a new one",
            )
        pointer = _pointer_of(capsule, name)
        assert pointer is not None
        versioned = name == b"dltensor_versioned"
        found = _Versioned.from_address(pointer).tensor if versioned else None
        header = found or _Tensor.from_address(pointer)
        self._capsule = capsule
        self._device = (int(header.device_type), int(header.device_id))

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class _Integers:
    """A DLPack exporter whose foreign elements pass for integers."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.native: np.dtype[Any] | None = None
        self.versioned = False

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.source.__dlpack__(**options)
        dtype = _element_type(capsule)
        self.versioned = _name_of(capsule) == b"dltensor_versioned"
        self.native = _NATIVE.get((dtype.code, dtype.bits)) if dtype.lanes == 1 else None
        if self.native is not None:
            dtype.code = _UINT
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.source.__dlpack_device__()


def _writable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``array`` to be written to: capsules of the first version do not say that nobody may.

    NumPy takes them all for read-only. The memory that the result lies in keeps ``array``, and so
    the exporter.
    """
    if array.size == 0:
        return array
    low, high = np.lib.array_utils.byte_bounds(array)
    memory: Any = (ctypes.c_byte * (high - low)).from_address(low)
    memory.owner = array
    offset = array.ctypes.data - low
    return np.ndarray(array.shape, array.dtype, memory, offset, array.strides)


def read(source: Any) -> np.ndarray[Any, Any]:
    """The array in the CPU memory of ``source``, shared; :data:`FOREIGN` elements included."""
    integers = _Integers(source)
    array = np.from_dlpack(integers)
    if not integers.versioned and not array.flags.writeable:
        array = _writable(array)
    return array if integers.native is None else array.view(integers.native)
