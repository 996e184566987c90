"""bfloat16 through DLPack: NumPy, which makes and reads the capsules, has no such element type.

The elements travel as uint16, and the element type in the capsule is rewritten on the way: its
layout is fixed by the DLPack specification (https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from coredispatch.backends.dtypes import BFLOAT16

__all__ = ["export", "read"]

_UINT, _BFLOAT = 1, 4  # of DLDataTypeCode


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
    """The capsule of a bfloat16 array of any strides; shares memory."""
    capsule = array.view(np.uint16).__dlpack__(**options)
    _element_type(capsule).code = _BFLOAT
    return capsule


class _Integers:
    """A DLPack exporter whose bfloat16 elements pass for uint16."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.rewritten = False

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.source.__dlpack__(**options)
        dtype = _element_type(capsule)
        if (dtype.code, dtype.bits) == (_BFLOAT, 16):
            dtype.code = _UINT
            self.rewritten = True
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.source.__dlpack_device__()


def read(source: Any) -> np.ndarray[Any, Any]:
    """The array in the CPU memory of ``source``, shared; bfloat16 included."""
    integers = _Integers(source)
    array = np.from_dlpack(integers)
    return array.view(BFLOAT16) if integers.rewritten else array
