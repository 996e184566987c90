"""Calling NumPy without its floating-point warnings, and without changing anybody's settings.

Division by zero, overflow and invalid operations are ordinary results here (inf, NaN), as they
are in PyTorch. NumPy keeps its error state in a context variable, so a call made inside a
prepared :class:`contextvars.Context` is silent while the caller's ``np.errstate`` stays as it
is. Measured per call, on top of 0.25 us for a small ``np.add``: running in the context 0.05 us,
in a copy of it 0.1 us, ``with np.errstate(...)`` 1.1 us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.registry.model.backend import ContextKernel
from coredispatch.registry.model.kernel_context import KernelContext

__all__ = ["silent", "silent_binary", "silent_unary"]

_SILENT = KernelContext()
_SILENT.run(np.seterr, all="ignore")


def silent(function: Callable[..., Any]) -> ContextKernel:
    """``function`` with floating-point warnings off."""
    return ContextKernel(function, _SILENT)


#: kernels of one array, and of two (or an array and a number), out of a ufunc
silent_unary = silent_binary = silent
