"""Is there a CUDA device that CuPy can use, and if not, why precisely.

The driver is asked first: it answers in a millisecond, and importing CuPy on a machine without
a GPU would cost half a second for nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy

__all__ = ["OLDEST", "Detection", "detect", "driver_problem", "has_bfloat16", "with_cupy"]

#: the first CuPy that works with the NumPy releases coredispatch needs
OLDEST = (13, 3)
#: the first CuPy whose functions take ml_dtypes' bfloat16, and the NumPy it needs for that
_WITH_BFLOAT16 = (14, 0)
_NUMPY_FOR_BFLOAT16 = "2.1.2"
_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


@dataclass(frozen=True)
class Detection:
    """What :func:`detect` found.

    Attributes:
        cupy: the module where there are devices, else None.
        count: number of devices.
        reason: why there is no device; None where there is one.
        fix: what to do about that.
    """

    cupy: Any = None
    count: int = 0
    reason: str | None = None
    fix: str | None = None


def detect() -> Detection:
    """Look for CuPy, the driver and the devices, in this order."""
    if find_spec("cupy") is None:
        return Detection(
            reason="CuPy is not installed",
            fix="pip install 'coredispatch-cuda-cupy[cuda13x]' (or cuda12x, as nvidia-smi says)",
        )
    problem = driver_problem(ctypes.CDLL)
    if problem is not None:
        return problem
    try:
        with warnings.catch_warnings():  # of a missing compiler, say: no reason to have no device
            warnings.simplefilter("default")
            cupy = importlib.import_module("cupy")
    except Exception as error:  # a CuPy for another CUDA major fails in several ways
        return Detection(
            reason=f"CuPy cannot be imported: {_first_line(error)}",
            fix="install the CuPy package for the CUDA major of the driver (see nvidia-smi)",
        )
    return with_cupy(cupy)


def driver_problem(load: Callable[[str], Any]) -> Detection | None:
    """Why the driver offers no device, or None; ``load(name)`` opens a shared library."""
    try:
        driver = load(_DRIVER)
    except OSError:
        return Detection(
            reason=f"the NVIDIA driver ({_DRIVER}) is not installed",
            fix="install the driver, or run on a machine with an NVIDIA GPU",
        )
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status == 0 and count.value > 0:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r})"
    if status in (0, _NO_DEVICE):
        return Detection(reason=f"the driver sees no device{hidden}", fix="check nvidia-smi")
    return Detection(
        reason=f"the driver answers with CUDA error {status}{hidden}", fix="check nvidia-smi"
    )


def with_cupy(cupy: Any) -> Detection:
    """What an imported CuPy says about versions and devices."""
    if _version(cupy) < OLDEST:
        return Detection(
            reason=f"CuPy {cupy.__version__} is too old",
            fix=f"install CuPy {OLDEST[0]}.{OLDEST[1]} or newer",
        )
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return Detection(
            reason=f"the CUDA runtime fails: {_first_line(error)}",
            fix="update the driver, or install the CuPy for its CUDA major (see nvidia-smi)",
        )
    if count == 0:
        return Detection(reason="the CUDA runtime sees no device", fix="check nvidia-smi")
    return Detection(cupy, count)


def has_bfloat16(cupy: Any) -> bool:
    """Whether the functions of this CuPy take bfloat16: from 14 on, with NumPy 2.1.2 or newer."""
    enough = numpy.lib.NumpyVersion(numpy.__version__) >= _NUMPY_FOR_BFLOAT16
    return _version(cupy) >= _WITH_BFLOAT16 and enough


def _version(cupy: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in cupy.__version__.split(".")[:2])


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
