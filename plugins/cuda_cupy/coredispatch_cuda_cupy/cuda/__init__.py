"""CUDA C++ of our own for operators that are many of CuPy's calls otherwise.

A module of this package launches the kernels of the texts, ``*.cu``. They are registered as a
kernel pack above the kernels over CuPy, which serve what a kernel here rejects by returning
NotImplemented: ``cd.explain`` shows both.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from coredispatch_cuda_cupy.cuda.flash import HALVES
from coredispatch_cuda_cupy.cuda.indexing import ADDED
from coredispatch_cuda_cupy.cuda.loading import FLOATS, WORDS
from coredispatch_cuda_cupy.cuda.scans import SCANNED

__all__ = ["MODULES", "PRIORITY", "TEXTS", "kernels"]

#: above the kernels over CuPy, which have 0
PRIORITY = 10
#: the modules that launch kernels
MODULES = (
    "softmax",
    "norms",
    "batch_norm",
    "indexing",
    "losses",
    "dropout",
    "optim_steps",
    "scans",
    "sorting",
    "pooling",
    "attention",
    "products",
)
#: the texts, and the element types that they are compiled for
TEXTS = {
    "softmax": FLOATS,
    "norms": FLOATS,
    "batch_norm": FLOATS,
    "moving": tuple(f"word{size}" for size in WORDS),
    "adding": ADDED,
    "checks": ("int64",),
    "losses": FLOATS,
    "dropout": FLOATS,
    "optim_steps": FLOATS,
    "scans": SCANNED,
    "sorting": tuple(f"word{size}" for size in (1, 2, 4, 8)),
    "pooling": FLOATS,
    "attention": FLOATS,
    "flash": HALVES,
}


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels by operator, over this CuPy. Nothing is compiled before it is called."""
    found: dict[str, Callable[..., Any]] = {}
    for module in MODULES:
        found |= import_module(f"{__name__}.{module}").kernels(cupy)
    return found
