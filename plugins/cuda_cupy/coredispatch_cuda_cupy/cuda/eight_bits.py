"""8-bit floats on the device: records of one byte, as in NumPy.

CuPy 14 holds such arrays and has no function for them. So what moves elements is done with their
bytes, and conversions are kernels of our own (``eight_bits.cu``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DType, call_raw, numpy_dtype
from coredispatch_cuda_cupy.cuda.layout import blocks, dense
from coredispatch_cuda_cupy.cuda.loading import Family, is_float

__all__ = ["KINDS", "MOVING", "EightBits", "plain"]

#: the types, in the order that the text counts them
_TYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
#: by the dtype of NumPy, how the texts number it
KINDS = {numpy_dtype(DType.of(name)): kind for kind, name in enumerate(_TYPES)}
#: operators that move elements, with the places of what becomes an element: an array of another
#: dtype, or a number
MOVING: dict[str, tuple[int, ...]] = {
    "cat": (),
    "clone": (),
    "constant_pad_nd": (2,),
    "embedding": (),
    "fill_": (1,),
    "flip": (),
    "gather": (),
    "getitem": (),
    "index_copy": (3,),
    "index_put": (2,),
    "index_select": (),
    "reshape": (),
    "scatter": (3,),
    "take": (),
    "where": (1, 2),
    "zero_": (),
}


def plain(x: Any) -> Any:
    """An array of NumPy or CuPy itself, or the bytes of 8-bit floats."""
    return x if x.dtype.names is None else x.view(np.uint8)


def _native(value: Any) -> Any:
    """The dtype of the 8-bit floats in an argument, None where there are none."""
    if isinstance(value, (list, tuple)):
        return next((found for item in value if (found := _native(item)) is not None), None)
    dtype = getattr(value, "dtype", None)
    return dtype if dtype in KINDS else None


class EightBits:
    """Conversions, and kernels for bytes as kernels for 8-bit floats."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.launch = Family(cupy, "eight_bits")

    def converted(self, x: Any, dtype: Any) -> Any:
        """``x`` in another dtype, where one of the two is an 8-bit float; a new array."""
        cupy = self.cupy
        if x.dtype == dtype:
            return plain(x).copy().view(dtype)
        if dtype in KINDS:
            if x.dtype in KINDS:
                x = self.converted(x, np.dtype(np.float32))
            x = x.real if x.dtype.kind == "c" else x
            x = dense(cupy, x if is_float(x.dtype) else x.astype(np.float32))
            out = cupy.empty(x.shape, np.uint8)
            if x.size:
                given = (x, out, x.size, KINDS[dtype])
                self.launch("encode", x.dtype, blocks(x.size), 256, given)
            return out.view(dtype)
        codes = dense(cupy, plain(x))
        out = cupy.empty(x.shape, dtype if is_float(dtype) else np.float32)
        if x.size:
            given = (codes, out, x.size, KINDS[x.dtype])
            self.launch("decode", out.dtype, blocks(x.size), 256, given)
        return out if out.dtype == dtype else out.astype(dtype)

    def kernels(self, kernels: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """The kernels of a table that take 8-bit floats as well, in their places."""
        found = {name: self._bytewise(name, kernels[name]) for name in MOVING.keys() & kernels}
        for name, change in (("to_dtype", self._to_dtype), ("full", self._full)):
            if name in kernels:
                found[name] = change(kernels[name])
        return found

    def _element(self, value: Any, native: Any) -> Any:
        """What stands for an element of 8 bits, as bytes."""
        if hasattr(value, "dtype"):
            return plain(value if value.dtype == native else self.converted(value, native))
        made = call_raw("to_dtype", "cpu", np.asarray(value, np.float32), DType.of(native))
        return int(made.view(np.uint8))

    def _bytewise(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        places = MOVING[name]

        def seen(place: int, value: Any, native: Any) -> Any:
            if place in places:
                return self._element(value, native)
            if isinstance(value, (list, tuple)):
                return type(value)(seen(-1, item, native) for item in value)
            return plain(value) if hasattr(value, "dtype") else value

        @functools.wraps(kernel)
        def run(*args: Any, **out: Any) -> Any:
            native = _native(args)
            if native is None:
                return kernel(*args, **out)
            if name == "index_put" and args[3]:
                raise TypeError("8-bit floats are not added up")
            made = kernel(*[seen(place, value, native) for place, value in enumerate(args)])
            return made if made is None or made is NotImplemented else made.view(native)

        return run

    def _to_dtype(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(kernel)
        def to_dtype(x: Any, dtype: DType) -> Any:
            target = numpy_dtype(dtype)
            if target in KINDS or x.dtype in KINDS:
                return self.converted(x, target)
            return kernel(x, dtype)

        return to_dtype

    def _full(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(kernel)
        def full(size: Any, value: Any, dtype: DType | None, device: Any) -> Any:
            native = None if dtype is None else numpy_dtype(dtype)
            if native not in KINDS:
                return kernel(size, value, dtype, device)
            value = value.item() if hasattr(value, "item") else value
            byte = self._element(value, native)
            return kernel(size, byte, DType.of(np.uint8), device).view(native)

        return full
