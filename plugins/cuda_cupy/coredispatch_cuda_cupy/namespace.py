"""CuPy as an array-API namespace: what a release lacks, and where it differs from the standard.

Everything else is CuPy's own, found by attribute. The names were checked against CuPy 13.3 to
15.0: ``astype``, ``permute_dims``, ``concat``, ``pow`` and the ``a*`` inverses came with 14,
``matrix_transpose`` and ``asarray(copy=)`` later.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.plugin import alert_not_deterministic
from coredispatch_cuda_cupy.division import refuse_zero_divisor
from coredispatch_cuda_cupy.generator import DeviceStream

__all__ = ["Namespace", "ScatterAdd"]

#: dtypes that atomicAdd takes in every CuPy release
_ATOMIC = ("int32", "uint32", "uint64", "float32", "float64")
#: dtype -> the wider one to add in; the result is rounded or wrapped back
_WIDER = {"bool": "int32", "int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
_WIDER |= {"float16": "float32", "bfloat16": "float32"}


class ScatterAdd:
    """``cupy.add``, with an ``at`` that takes every dtype.

    ``cupy.add.at`` is built on atomicAdd, which has no int64, complex, 8- and 16-bit form.
    """

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.function = cupy.add

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def at(self, x: Any, index: Any, values: Any) -> None:
        """``x[index] += values`` where places that repeat add up; in place.

        In which order they add up is not determined, so neither is the last bit of a sum.
        """
        cupy = self.cupy
        if x.dtype.kind in "fc":
            alert_not_deterministic("a sum of floating-point numbers at repeated indices on CUDA")
        values = cupy.asarray(values).astype(x.dtype, copy=False)
        name = x.dtype.name
        if name in _ATOMIC:
            self.function.at(x, index, values)
        elif name == "int64":
            # Two's complement: adding the same bits as unsigned is the same sum.
            self.function.at(x.view("uint64"), index, values.copy().view("uint64"))
        elif name in ("complex64", "complex128"):
            for part in ("real", "imag"):
                wide = getattr(x, part).copy()
                self.function.at(wide, index, getattr(values, part).copy())
                setattr(x, part, wide)
        else:
            wide = x.astype(_WIDER[name])
            self.function.at(wide, index, values.astype(_WIDER[name]))
            x[...] = wide.astype(x.dtype)


class _Random:
    """``xp.random`` with generators whose position can be saved."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def default_rng(self, seed: int) -> DeviceStream:
        """A stream of random numbers on the current device."""
        return DeviceStream(self._cupy, seed)


def _is_bfloat16(x: Any) -> bool:
    return getattr(getattr(x, "dtype", None), "name", "") == "bfloat16"


class Namespace:
    """CuPy with the names of the standard."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.add = ScatterAdd(cupy)
        self.random = _Random(cupy)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        setattr(self, name, found)
        return found

    def asarray(self, x: Any, dtype: Any = None, copy: bool | None = None) -> Any:
        """``x`` as an array of ``dtype``; a new one where ``copy`` is True.

        A number is written by a kernel that is given it: a copy from the host would need memory
        that lives as long as a captured graph.
        """
        if isinstance(x, (bool, int, float, complex)):
            checked = np.array(x, dtype)  # raises OverflowError where it does not fit
            return self._cupy.full((), x, checked.dtype)
        out = self._cupy.asarray(x, dtype=dtype)
        return out.copy() if copy and out is x else out

    def astype(self, x: Any, dtype: Any, copy: bool = True) -> Any:
        """``x`` converted to ``dtype``, always a new array unless ``copy`` is False."""
        return x.astype(dtype, copy=copy)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """``a`` where ``condition`` holds, else ``b``."""
        return self._moving(self._cupy.where, condition, a, b)

    def triu(self, x: Any, k: int = 0) -> Any:
        """``x`` with zeros below the diagonal ``k``."""
        return self._moving(self._cupy.triu, x, k=k)

    def tril(self, x: Any, k: int = 0) -> Any:
        """``x`` with zeros above the diagonal ``k``."""
        return self._moving(self._cupy.tril, x, k=k)

    def _moving(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """A function that only moves elements: ``cupy.where`` would widen bfloat16 to float32."""
        dtype = next((x.dtype for x in args if _is_bfloat16(x)), None)
        if dtype is None:
            return function(*args, **kwargs)

        def words(x: Any) -> Any:
            if isinstance(x, (int, float)) and not isinstance(x, bool):
                x = self.asarray(x, dtype=dtype)
            return x.view("uint16") if _is_bfloat16(x) else x

        return function(*map(words, args), **kwargs).view(dtype)

    def refuse_zero_divisor(self, divisor: Any) -> None:
        """Have an error raised at the next wait if an integer ``divisor`` has a 0."""
        refuse_zero_divisor(self._cupy, divisor)

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        """Whether ``dtype`` is of the kind; both are NumPy's, which says nothing of bfloat16."""
        if dtype.name == "bfloat16":
            return bool(np.isdtype(np.dtype("float32"), kind))
        return bool(np.isdtype(dtype, kind))

    def permute_dims(self, x: Any, axes: tuple[int, ...]) -> Any:
        """A view with the dimensions in another order."""
        return self._cupy.transpose(x, axes)

    def concat(self, arrays: Any, axis: int = 0) -> Any:
        """The arrays one after the other along ``axis``."""
        return self._cupy.concatenate(arrays, axis=axis)

    def matrix_transpose(self, x: Any) -> Any:
        """A view with the last two dimensions swapped."""
        return self._cupy.swapaxes(x, -1, -2)
