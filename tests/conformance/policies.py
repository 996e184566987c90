"""What a backend may do otherwise, once it says so: rounding that is a policy and no fault.

``conformance.toml`` declares them, instead of an expected failure for every case::

    [policies]
    flush_to_zero = ["float32"]   # subnormal numbers of these dtypes may count as zero
    tf32 = true                   # products of float32 may read 10 bits of their operands' mantissa
    compiles = true               # each shape costs a compilation: fewer shapes are tried

So does the attribute ``policies`` of the backend's class, with the same names and values; what both
name is as the file says. A backend over a library whose policies are known has them without either.

A result is judged without them first. The report names the policies that are declared, and the
cases that passed by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from .distributions import limits

__all__ = ["NONE", "Leniency", "Policies", "flushed", "flushes", "leniency", "lenient"]

#: spacing of TF32 numbers at 1: 10 bits of mantissa are stored
TF32_EPS = 2.0**-10


@dataclass(frozen=True)
class Policies:
    """The declared policies of a backend."""

    flush_to_zero: tuple[str, ...] = ()
    tf32: bool = False
    compiles: bool = False

    @property
    def declared(self) -> list[str]:
        """Them as text, for a report."""
        flush = [f"flush_to_zero ({', '.join(self.flush_to_zero)})"] if self.flush_to_zero else []
        return [*flush, *(n for n in ("tf32", "compiles") if getattr(self, n))]


NONE = Policies()


@dataclass(frozen=True)
class Leniency:
    """What is allowed while a result is judged a second time; ``flush`` names dtypes."""

    flush: tuple[str, ...] = ()
    tf32: bool = False


_STRICT = Leniency()
_now: ContextVar[Leniency] = ContextVar("leniency", default=_STRICT)


def flushes(dtype: Any) -> bool:
    """Whether subnormal numbers of a NumPy dtype may count as zero now."""
    flush = _now.get().flush
    return bool(flush) and ("bfloat16" if dtype.kind == "V" else dtype.name) in flush


def leniency() -> Leniency:
    """What is allowed now."""
    return _now.get()


@contextmanager
def lenient(allowed: Leniency) -> Iterator[None]:
    """A block in which the bounds allow more."""
    token = _now.set(allowed)
    try:
        yield
    finally:
        _now.reset(token)


def flushed(array: Any, dtypes: tuple[str, ...]) -> Any:
    """The array with zeros, of their signs, in the place of subnormal numbers of ``dtypes``.

    The components of complex numbers have the dtype of their size.
    """
    name = "bfloat16" if array.dtype.kind == "V" else array.dtype.name
    part = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    if part not in dtypes or bool(getattr(array, "layout", None)):
        return array
    if array.dtype.kind == "c":
        out = array.copy()
        out.real = flushed(array.real, dtypes)
        out.imag = flushed(array.imag, dtypes)
        return out
    wide = array.astype(np.float64)
    small = np.abs(wide) < float(limits(array.dtype).smallest_normal)
    if not small.any():
        return array
    return np.where(small, np.copysign(0.0, wide), wide).astype(array.dtype)
