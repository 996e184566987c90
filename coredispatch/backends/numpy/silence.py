"""Calling NumPy without its floating-point warnings, and without changing anybody's settings.

Division by zero, overflow and invalid operations are ordinary results here (inf, NaN), as they
are in PyTorch. NumPy keeps its error state in a context variable, so a call made inside a
prepared :class:`contextvars.Context` is silent while the caller's ``np.errstate`` stays as it
is. Measured per call, on top of 0.25 us for a small ``np.add``: running in a copy of the context
0.1 us, ``with np.errstate(...)`` 1.1 us. The copy (constant time) is needed because two threads
cannot enter one context at once.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["silent", "silent_binary", "silent_unary"]

_SILENT = contextvars.Context()
_SILENT.run(np.seterr, all="ignore")
_fresh = _SILENT.copy


def silent(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with floating-point warnings off."""

    @functools.wraps(function)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _fresh().run(function, *args, **kwargs)

    return kernel


def silent_unary(ufunc: np.ufunc) -> Callable[..., Any]:
    """A kernel of one array out of ``ufunc``."""

    def kernel(x: Any, out: Any = None) -> Any:
        if out is None:
            return _fresh().run(ufunc, x)
        return _fresh().run(ufunc, x, out=out)

    kernel.__name__ = ufunc.__name__
    return kernel


def silent_binary(ufunc: np.ufunc) -> Callable[..., Any]:
    """A kernel of two arrays (or an array and a number) out of ``ufunc``."""

    def kernel(a: Any, b: Any, out: Any = None) -> Any:
        if out is None:
            return _fresh().run(ufunc, a, b)
        return _fresh().run(ufunc, a, b, out=out)

    kernel.__name__ = ufunc.__name__
    return kernel
