"""Backends that come with coredispatch: NumPy under ``cpu``, ``meta``, and their array-API base.

``cd.backends.cudnn`` and the like are the settings of ``coredispatch/frontend/backends``.
"""
# ruff: isort: skip_file

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coredispatch.backends import (
        cpu as cpu,
        cuda as cuda,
        cudnn as cudnn,
        mha as mha,
        mkl as mkl,
        mkldnn as mkldnn,
        mps as mps,
        openmp as openmp,
        opt_einsum as opt_einsum,
        quantized as quantized,
    )

#: of all backends; kept, and without effect: see ``set_float32_matmul_precision``
fp32_precision = "none"


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(module.name for module in pkgutil.iter_modules(__path__))})
