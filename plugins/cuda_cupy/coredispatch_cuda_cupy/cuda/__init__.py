"""CUDA C++ of our own for operators that are many of CuPy's calls otherwise.

A module of this package launches the kernels of the texts, ``*.cu``. They are registered as a
kernel pack above the kernels over CuPy, which serve what a kernel here rejects by returning
NotImplemented: ``cd.explain`` shows both.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from coredispatch_cuda_cupy.cuda.eight_bits import EightBits
from coredispatch_cuda_cupy.cuda.flash import HALVES
from coredispatch_cuda_cupy.cuda.grouped_products import WRITTEN
from coredispatch_cuda_cupy.cuda.indexing import ADDED
from coredispatch_cuda_cupy.cuda.loading import FLOATS, WORDS
from coredispatch_cuda_cupy.cuda.scans import SCANNED
from coredispatch_cuda_cupy.detection import has_bfloat16

__all__ = [
    "LIBRARIES",
    "LIBRARY_PRIORITY",
    "MODULES",
    "PRIORITY",
    "TEXTS",
    "kernels",
    "library_kernels",
]

#: above the kernels over CuPy, which have 0
PRIORITY = 10
#: of what libraries compute, above our own kernels
LIBRARY_PRIORITY = 20
#: the modules that launch kernels
MODULES = (
    "softmax",
    "norms",
    "batch_norm",
    "indexing",
    "checked",
    "losses",
    "dropout",
    "optim_steps",
    "tensor_lists",
    "scans",
    "sorting",
    "pooling",
    "attention",
    "quantized",
    "grouped_products",
)
#: the modules that call cuBLASLt and cuDNN, where these are found
LIBRARIES = ("products", "scaled_products", "convolution", "sdpa", "batch_norm_graphs")
#: the texts, and the element types that they are compiled for
TEXTS = {
    "softmax": FLOATS,
    "norms": FLOATS,
    "batch_norm": FLOATS,
    "moving": tuple(f"word{size}" for size in WORDS),
    "adding": ADDED,
    "checks": ("int64",),
    "bounds": FLOATS,
    "losses": FLOATS,
    "dropout": FLOATS,
    "optim_steps": FLOATS,
    "tensor_lists": FLOATS,
    "scans": SCANNED,
    "sorting": tuple(f"word{size}" for size in (1, 2, 4, 8)),
    "pooling": FLOATS,
    "attention": FLOATS,
    "flash": HALVES,
    "quantized": ("word1",),
    "eight_bits": FLOATS,
    "grouped": WRITTEN,
    "grouped_floats": FLOATS,
}


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels by operator, over this CuPy. Nothing is compiled before it is called."""
    found = _of(MODULES, cupy)
    return found | EightBits(cupy).kernels(found) if has_bfloat16(cupy) else found


def library_kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """What cuBLASLt and cuDNN compute, by operator; of a library that is not there nothing."""
    return _of(LIBRARIES, cupy)


def _of(modules: tuple[str, ...], cupy: Any) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for module in modules:
        found |= import_module(f"{__name__}.{module}").kernels(cupy)
    return found
