"""The embedded default backend: NumPy under the key ``cpu``.

Made of the array-API base plus ``KERNELS`` of the family modules here, which override it with
NumPy's fastest form. Registered through the same hook as a third party's plugin.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from coredispatch.backends.array_api import FAMILIES, ArrayApiBackend
from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.backends.numpy import blas_threads
from coredispatch.backends.numpy.shape.views import owner_of
from coredispatch.registry.around.hookspecs import hookimpl
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.model.dtypes import EIGHT_BIT_FLOATS, DType, bfloat16

__all__ = ["NumpyBackend", "coredispatch_register"]


def _overrides() -> dict[str, Callable[..., Any]]:
    kernels: dict[str, Callable[..., Any]] = {}
    for family in FAMILIES:
        kernels.update(importlib.import_module(f"{__name__}.{family}").KERNELS)
    return kernels


@functools.lru_cache(maxsize=256)
def _bfloat16_scalar(value: Any, kind: type, sign: float) -> Any:
    made = np.asarray(value, numpy_dtype(bfloat16))
    made.flags.writeable = False
    return made


class NumpyBackend(ArrayApiBackend):
    """Dense arrays in main memory, computed by NumPy."""

    name: ClassVar[str] = "cpu"
    array_type: ClassVar[type] = np.ndarray
    xp: ClassVar[Any] = np
    views: ClassVar[bool] = True
    has_base: ClassVar[bool] = True
    storage_dtypes = EIGHT_BIT_FLOATS
    scalar_type: ClassVar[type | None] = np.generic

    def __init__(self) -> None:
        self.overrides = _overrides()

    def scalar(self, value: Any, dtype: DType) -> Any:
        """The number, or a 0-dim array of it beside bfloat16, which is made once."""
        if dtype is not bfloat16:
            return value
        # 0.0 equals -0.0, and True 1
        return _bfloat16_scalar(value, type(value), math.copysign(1, value))

    def from_numpy(self, array: Any) -> Any:
        """The array itself."""
        return array

    def to_numpy(self, raw: Any) -> Any:
        """The array itself."""
        return raw

    def transfer(self, raw: Any, source: Any, index: int, non_blocking: bool = False) -> Any:
        """The array of another backend in main memory.

        With ``non_blocking`` it may be written later, by a backend that has ``to_host(raw)``.
        """
        later = getattr(source, "to_host", None) if non_blocking else None
        return super().transfer(raw, source, index) if later is None else later(raw)

    def copyto(self, dst: Any, src: Any) -> Any:
        """Write in place; refuses memory that several elements share."""
        np.copyto(dst, src, casting="unsafe")

    def coerce(self, out: Any) -> Any:
        """A 0-dim array for a scalar; anything else is refused."""
        return np.asarray(out) if isinstance(out, np.generic) else super().coerce(out)

    def offset(self, raw: Any) -> int:
        """Elements between the start of the owning array and the first element."""
        return int(owner_of(raw)[1]) // raw.itemsize if raw.size else 0

    def device_name(self, index: int = 0) -> str:
        """The processor's architecture."""
        import platform

        return f"{platform.machine()} (NumPy {np.__version__})"

    def memory(self, index: int = 0) -> dict[str, int]:
        """Main memory of the machine in bytes, where the system tells."""
        import os

        try:
            return {"total": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
        except (AttributeError, ValueError, OSError):
            return {}


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the backend ``cpu``."""
    registrar.backend(NumpyBackend())
    registrar.thread_pool("blas", blas_threads.set_num_threads)
