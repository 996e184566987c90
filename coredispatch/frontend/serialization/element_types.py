"""Element types as a file names them, and which bytes mean something in them."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import Any, Final

import ml_dtypes
import numpy as np

from coredispatch.backends.dtypes import element_name, numpy_dtype
from coredispatch.frontend.memory_spans import bytes_between, span
from coredispatch.registry.model.dtypes import ALL_DTYPES, STORAGE_DTYPES

__all__ = ["dtype_named", "dtype_text", "only_valid_elements"]

Array = np.ndarray[Any, Any]

#: what tensors and arrays have: coredispatch's own element types, by name and by NumPy's text
_NATIVE: Final = {dtype.name: np.dtype(dtype.name) for dtype in ALL_DTYPES}
#: 8-bit floats, of which NumPy's names say nothing
_STORED: Final = {
    dtype.name: numpy_dtype(dtype) for dtype in STORAGE_DTYPES if hasattr(ml_dtypes, dtype.name)
}
_BY_TEXT: Final = {
    **_NATIVE,
    **{d.str: d for d in _NATIVE.values() if d.isbuiltin == 1},
    **_STORED,
}
_SWAPPED: Final = {
    d.newbyteorder().str: d.newbyteorder() for d in _BY_TEXT.values() if d.isbuiltin == 1
}
#: what NumPy arrays may have besides: text, bytes, dates and differences of dates
_OTHER: Final = re.compile(
    r"[<>]U[1-9]\d{0,8}|\|S[1-9]\d{0,8}|[<>][mM]8(\[([1-9]\d{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)


@functools.lru_cache(256)
def dtype_text(dtype: np.dtype[Any]) -> str | None:
    """How a file names an element type; None for one that no file has."""
    if dtype.names is not None:
        name = element_name(dtype)
        return name if name in _STORED else None
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
            with contextlib.suppress(TypeError, ValueError):  # a size that NumPy does not have
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
