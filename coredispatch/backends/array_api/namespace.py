"""A namespace of the array API standard, as the kernels of this package see it.

The standard leaves out what a backend needs to know (its own dtype for one of ours, whether its
arrays are NumPy's in all but name), and some libraries spell functions in their own way. Both are
settled here, once per namespace.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.lacking import Lacking
from coredispatch.backends.array_api.programs import as_program
from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.registry.model.dtypes import ALL_DTYPES, DType
from coredispatch.registry.model.errors import DTypeError, RegistrationError

__all__ = ["Namespace", "is_half", "standard"]

#: elements of an array of one number that the host makes
FEW = 4096

#: what sums are accumulated in. No library has to add better than one by one, and one accumulator
#: of the sum's own precision drifts. bfloat16 out of float64 would be rounded twice.
_ACCUMULATORS = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float64",
    "complex64": "complex128",
}


def is_half(dtype: Any) -> bool:
    """Whether the native ``dtype`` is float16 or bfloat16."""
    return str(dtype).rpartition(".")[2] in ("float16", "bfloat16")


def standard(xp: Any) -> Any:
    """``xp`` if it is spelled as the standard says, else what ``array-api-compat`` makes of it.

    Raises :class:`RegistrationError` for a library that neither knows.
    """
    if hasattr(xp, "__array_api_version__") or hasattr(xp, "permute_dims"):
        return xp
    name = xp.__name__
    try:
        return importlib.import_module(f"array_api_compat.{name}")
    except ImportError as error:
        raise RegistrationError(
            f"{name} does not spell its functions as the array API standard does",
            fix="pip install array-api-compat, or set xp to a namespace of the standard",
        ) from error


class Namespace:
    """The functions of ``xp``, and what the standard does not say.

    Attributes:
        xp: the namespace itself, spelled as the standard says.
        strided: whether it is NumPy or made after it (CuPy): arrays have strides, basic indexing
            makes views, ``x[index] = v`` and ``add.at`` write. Of any other nothing but the
            standard is used, and no array is ever written to.
        jit: the library's compiler, where a kernel of many steps is to be one program, and
        array_type: the class of the arrays that are its inputs.
    """

    jit: Callable[..., Any] | None = None
    array_type: type = object

    def __init__(self, xp: Any) -> None:
        self.xp = standard(xp)
        tricks = getattr(getattr(xp, "lib", None), "stride_tricks", None)
        self.strided: bool = hasattr(tricks, "as_strided")
        self._programs: dict[Callable[..., Any], Callable[..., Any]] = {}

    @classmethod
    def of(cls, xp: Any) -> Namespace:
        """``xp`` as a :class:`Namespace`."""
        return xp if isinstance(xp, cls) else cls(xp)

    def __getattr__(self, name: str) -> Any:
        if self.strided or name.startswith("__"):
            value = getattr(self.xp, name)
        else:
            value = getattr(self.xp, name, None) or Lacking(self.xp.__name__, name)
        self.__dict__[name] = value  # found at once from now on
        return value

    def has(self, name: str) -> bool:
        """Whether the namespace has an attribute; NumPy's are not imported by the question."""
        return name in dir(self.xp) or hasattr(self.xp, name)

    def native(self, dtype: DType) -> Any:
        """The namespace's own object for ``dtype``; raises :class:`DTypeError` without one."""
        if self.strided:
            return numpy_dtype(dtype)
        if dtype.name not in self.dtypes:
            raise DTypeError(
                f"{self.xp.__name__} has no {dtype.name}",
                fix=f"use one of {', '.join(sorted(self.dtypes))}",
            )
        return getattr(self.xp, dtype.name)

    @functools.cached_property
    def dtypes(self) -> frozenset[str]:
        """Names of the dtypes that the namespace says it has; the standard has no half precision.

        A library may have the object for a dtype, and not the functions over it.
        """
        names = {d.name for d in ALL_DTYPES}
        info = getattr(self.xp, "__array_namespace_info__", None)
        told = names if info is None else names & info().dtypes().keys()
        halves = {"float16", "bfloat16"} & set(dir(self.xp))
        return frozenset(name for name in told | halves if hasattr(self.xp, name))

    @functools.cached_property
    def immutable(self) -> bool:
        """Whether nobody can write to an array, as in JAX: then no two need memory of their own."""
        array = self.xp.zeros(1)
        try:
            array[0] = 1
        except (TypeError, ValueError):
            return True
        return False

    def program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` as one program, where the library compiles; see :func:`as_program`."""
        if self.jit is None:
            return function
        found: Callable[..., Any] | None = self._programs.get(function)
        if found is None:
            found = as_program(function, self.jit, self.array_type)
            self._programs[function] = found
        return found

    def copy(self, x: Any) -> Any:
        """``x`` in memory of its own, row-major; itself where arrays are immutable."""
        if self.strided:
            return x.copy()
        return x if self.immutable else self.xp.asarray(x, copy=True)

    def accumulator(self, native: Any) -> Any:
        """The native dtype in which sums of ``native`` are added up, the wider one where there is.

        Without float64 a sum of float32 is as good as the library's own.
        """
        wider = _ACCUMULATORS.get(DType.of(native).name)
        if wider is None or not (self.strided or wider in self.dtypes):
            return native
        return self.native(DType.of(wider))

    def total(self, x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        """The sum over ``axis`` in the dtype of ``x``, accumulated in a wider one."""
        wide = self.accumulator(x.dtype)
        out = self.sum(x, axis=axis, keepdims=keepdims, dtype=wide)
        return self.astype(out, x.dtype, copy=False)

    def mean(self, x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        """The mean over ``axis``, accumulated as :meth:`total` does; NaN of no elements."""
        dims = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        count = math.prod(x.shape[d] for d in dims)
        if not count:  # by way of a product, because NumPy warns of the quotient
            return self.sum(x, axis=axis, keepdims=keepdims) * float("nan")
        wide = self.accumulator(x.dtype)
        out = self.sum(x, axis=axis, keepdims=keepdims, dtype=wide) / count
        return self.astype(out, x.dtype, copy=False)

    def filled(self, size: Any, value: Any, dtype: DType) -> Any:
        """An array of one number. The host makes a small one: no library compiles a copy."""
        native = self.native(dtype)
        if not self.strided and math.prod(size) <= FEW and dtype.name != "bfloat16":
            import numpy

            try:
                made = numpy.full(size, value, numpy_dtype(dtype))
            except (OverflowError, TypeError, ValueError):
                pass  # what the dtype does not hold is refused by the library, in its words
            else:
                return self.asarray(made, dtype=native)
        return self.full(size, value, dtype=native)
