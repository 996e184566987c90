"""A backend out of an array-API namespace: ``numpy``, ``cupy``, ``jax.numpy``, ...

Each family module has ``kernels(xp)``: the kernels of that family written with the functions
of the namespace. A backend made of them is a few lines::

    class Mine(ArrayApiBackend):
        name = "mine"
        array_type = xp.ndarray
        xp = xp
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from coredispatch.backends.array_api.lacking import lacking
from coredispatch.backends.array_api.libraries import (
    ON_THE_HOST,
    OWN,
    POLICIES,
    WITH_INT64,
    over_numpy,
)
from coredispatch.backends.array_api.namespace import Namespace
from coredispatch.backends.array_api.programs import WHOLE
from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.dtypes import DType, bfloat16
from coredispatch.registry.model.errors import RegistrationError

__all__ = ["FAMILIES", "ArrayApiBackend", "family_kernels"]

#: the modules of this package that hold kernels
FAMILIES = (
    "elementwise",
    "reduction",
    "activation",
    "shape",
    "indexing",
    "linalg",
    "fft",
    "random",
    "creation",
    "conv",
    "pooling",
    "norm",
    "loss",
    "nn",
)


def family_kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """Every kernel that can be written with what the namespace ``xp`` has."""
    kernels: dict[str, Callable[..., Any]] = {}
    xp = Namespace.of(xp)
    for family in FAMILIES:
        module = importlib.import_module(f"{__name__}.{family}")
        kernels.update(module.kernels(xp))
    if xp.strided:
        return kernels
    return {op: kernel for op, kernel in kernels.items() if not lacking(kernel, Namespace)}


def _silent(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel`` without the warnings of NumPy, which may compute below the namespace."""
    import numpy

    @functools.wraps(kernel)
    def silent(*args: Any) -> Any:
        with numpy.errstate(all="ignore"):
            return kernel(*args)

    return silent


def _is_numpys(native: Any) -> bool:
    """Whether the library's bfloat16 is the one that NumPy knows from ml_dtypes, as JAX's is."""
    import numpy

    try:
        return bool(numpy.dtype(native) == numpy_dtype(bfloat16))
    except TypeError:
        return False


class ArrayApiBackend(Backend):
    """Base of backends whose arrays come from an array-API namespace ``xp``.

    Set ``name``, ``array_type`` and ``xp``; ``overrides`` replaces or adds single kernels.
    ``views`` is True where basic indexing and reshape return views, as in NumPy and CuPy.
    ``jit`` is the compiler of a library that compiles each function for each shape, called as
    ``jax.jit`` is: kernels of many steps become one program (:mod:`.programs`).
    ``on_the_host`` names the operators whose kernels run over NumPy because the library computes
    otherwise than they say; None stands for what is known of the library (:mod:`.libraries`).
    ``policies`` are those that are known of the library, unless the class names its own.
    Without int64 - indices and sums of integers have it - there are no kernels, and a
    :class:`RegistrationError` says how the library gets it.
    """

    xp: ClassVar[Any] = None
    overrides: Mapping[str, Callable[..., Any]] = {}
    views: ClassVar[bool] = False
    jit: ClassVar[Callable[..., Any] | None] = None
    on_the_host: ClassVar[tuple[str, ...] | None] = None
    _kernels: dict[str, Callable[..., Any]] | None = None
    _namespace: Namespace | None = None

    @property
    def kernels(self) -> Mapping[str, Callable[..., Any]]:  # type: ignore[override]
        """All family kernels over ``xp``, with ``overrides`` on top."""
        if self._kernels is None:
            self._ask_for_int64()
            found = family_kernels(self.namespace)
            if not self.namespace.strided:
                found = {name: self._finished(name, kernel) for name, kernel in found.items()}
            self._kernels = {**found, **self._over_numpy(), **self.overrides}
        return self._kernels

    @property
    def policies(self) -> Mapping[str, Any]:  # type: ignore[override]
        """What is known of the library ``xp``."""
        return POLICIES.get(self._library, {})

    @property
    def _library(self) -> str:
        return str(getattr(self.xp, "__name__", ""))

    def _ask_for_int64(self) -> None:
        """Raise :class:`RegistrationError` where indices and sums of integers have no dtype.

        Said here, once: otherwise each operator would fail for it in words of its own.
        """
        dtypes = self.dtypes
        if dtypes is None or "int64" in dtypes:
            return
        library = self._library or type(self.xp).__name__
        raise RegistrationError(
            f"{library} has no int64, which indices and sums of integers are on the backend "
            f"{self.name!r}; it has {', '.join(sorted(dtypes))}",
            fix=WITH_INT64.get(library, "set xp to a namespace that has integers of 64 bits"),
        )

    def _over_numpy(self) -> dict[str, Callable[..., Any]]:
        names = self.on_the_host
        if names is None:
            names = ON_THE_HOST.get(self._library, ())
        if not names:
            return {}
        import numpy

        kernels = family_kernels(numpy) | OWN
        if unknown := [name for name in names if name not in kernels]:
            raise RegistrationError(
                f"on_the_host of {self.name!r}: there is no kernel over NumPy for {unknown[0]!r}",
                fix="name operators for which coredispatch.backends.array_api has a kernel",
            )
        return {
            name: over_numpy(kernels[name], self.array_type, self.to_numpy, self.from_numpy)
            for name in names
        }

    def _finished(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        return _silent(self.namespace.program(kernel) if name in WHOLE else kernel)

    @property
    def namespace(self) -> Namespace:
        """``xp`` as the kernels see it."""
        found = self._namespace
        if found is None:
            found = self._namespace = Namespace.of(self.xp)
            found.jit, found.array_type = self.jit, self.array_type
        return found

    @property
    def dtypes(self) -> frozenset[str] | None:  # type: ignore[override]
        """Those that the namespace says it has; NumPy has all, a missing library names none."""
        if self.xp is None or self.namespace.strided:
            return None
        return self.namespace.dtypes

    def native_dtype(self, dtype: DType) -> Any:
        """The namespace's own dtype object for ``dtype``."""
        return self.namespace.native(dtype)

    def from_numpy(self, array: Any) -> Any:
        """``xp.asarray(array)``; raises :class:`DTypeError` for a dtype that ``xp`` has not."""
        xp, dtype = self.namespace, DType.of(array.dtype)
        if xp.strided:
            return xp.asarray(array)
        native = xp.native(dtype)
        array = array.copy()  # here, where no library compiles a program for it
        if dtype is bfloat16 and not _is_numpys(native):
            words = xp.asarray(array.view("int16"))
            if hasattr(words, "view"):  # bit by bit, so that a NaN keeps its sign
                return words.view(native)
            bits = array.view("uint16").astype("uint32") << 16
            return xp.astype(xp.asarray(bits.view("float32")), native)
        return xp.asarray(array, dtype=native)

    def to_numpy(self, raw: Any) -> Any:
        """``numpy.asarray(raw)``."""
        import numpy

        if (
            not self.namespace.strided
            and DType.of(raw.dtype) is bfloat16
            and not _is_numpys(raw.dtype)
        ):
            if hasattr(raw, "view"):
                words = numpy.asarray(raw.view(self.namespace.int16))
                return words.view(numpy_dtype(bfloat16))
            wide = self.namespace.astype(raw, self.namespace.float32)
            return numpy.asarray(wide).astype(numpy_dtype(bfloat16))
        return numpy.asarray(raw)

    def scalar(self, value: Any, dtype: DType) -> Any:
        """The number, or a 0-dim array of it where no namespace knows it as weak."""
        if dtype is not bfloat16 and self.namespace.strided:
            return value
        return self.namespace.asarray(value, dtype=self.native_dtype(dtype))

    def copyto(self, dst: Any, src: Any) -> Any:
        """``dst[...] = src``; where arrays may be immutable, what takes the place of ``dst``."""
        if self.namespace.strided:
            dst[...] = src
            return None
        wanted = DType.of(dst.dtype)
        same = DType.of(src.dtype) is wanted
        return self.namespace.broadcast_to(src if same else self.cast(src, wanted), dst.shape)

    def strides(self, raw: Any) -> tuple[int, ...] | None:
        """Strides in elements, where the arrays have them."""
        strides = getattr(raw, "strides", None)
        return None if strides is None else tuple(s // raw.itemsize for s in strides)

    def is_view(self, out: Any, source: Any) -> bool:
        """Whether ``out`` was made as a view of ``source`` (or of the array source views)."""
        if not self.views or out is source:
            return True
        base = out.base
        return base is not None and (base is source or base is source.base)

    def coerce(self, out: Any) -> Any:
        """A 0-dim array for a scalar of the namespace; anything else is refused."""
        if getattr(out, "shape", None) == () and hasattr(out, "dtype"):
            return self.xp.asarray(out)
        return super().coerce(out)
