"""A backend out of an array-API namespace: ``numpy``, ``cupy``, ``jax.numpy``, ...

Each family module has ``kernels(xp)``: the kernels of that family written with the functions
of the namespace. A backend made of them is a few lines::

    class Mine(ArrayApiBackend):
        name = "mine"
        array_type = xp.ndarray
        xp = xp
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.dtypes import DType, bfloat16

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
    """Every kernel that can be written with the namespace ``xp``."""
    kernels: dict[str, Callable[..., Any]] = {}
    for family in FAMILIES:
        module = importlib.import_module(f"{__name__}.{family}")
        kernels.update(module.kernels(xp))
    return kernels


class ArrayApiBackend(Backend):
    """Base of backends whose arrays come from an array-API namespace ``xp``.

    Set ``name``, ``array_type`` and ``xp``; ``overrides`` replaces or adds single kernels.
    ``views`` is True where basic indexing and reshape return views, as in NumPy and CuPy.
    """

    xp: ClassVar[Any] = None
    overrides: Mapping[str, Callable[..., Any]] = {}
    views: ClassVar[bool] = False
    _kernels: dict[str, Callable[..., Any]] | None = None

    @property
    def kernels(self) -> Mapping[str, Callable[..., Any]]:  # type: ignore[override]
        """All family kernels over ``xp``, with ``overrides`` on top."""
        if self._kernels is None:
            self._kernels = {**family_kernels(self.xp), **self.overrides}
        return self._kernels

    def native_dtype(self, dtype: DType) -> Any:
        """The namespace's own dtype object for ``dtype``."""
        return numpy_dtype(dtype)

    def from_numpy(self, array: Any) -> Any:
        """``xp.asarray(array)``."""
        return self.xp.asarray(array)

    def to_numpy(self, raw: Any) -> Any:
        """``numpy.asarray(raw)``."""
        import numpy

        return numpy.asarray(raw)

    def scalar(self, value: Any, dtype: DType) -> Any:
        """The number, or a 0-dim array of it for bfloat16, which no namespace knows as weak."""
        return (
            self.xp.asarray(value, dtype=self.native_dtype(dtype)) if dtype is bfloat16 else value
        )

    def copyto(self, dst: Any, src: Any) -> Any:
        """``dst[...] = src`` where arrays are mutable."""
        dst[...] = src
        return None

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
