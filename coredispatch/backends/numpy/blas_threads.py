"""The number of threads of the BLAS that NumPy calls.

Through threadpoolctl where it is installed, which knows every BLAS; else through the functions of
the OpenBLAS or MKL that is loaded, as far as the system lists what a process has loaded.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

__all__ = ["describe", "set_num_threads"]

#: (to set, to get): the names in NumPy's own wheels first
_FUNCTIONS = (
    ("scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"),
    ("scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"),
    ("openblas_set_num_threads64_", "openblas_get_num_threads64_"),
    ("openblas_set_num_threads", "openblas_get_num_threads"),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
)
Functions = tuple[str, Callable[[int], None], Callable[[], int]]


def _loaded_libraries() -> Iterator[str]:
    """Files of the shared libraries that may be the BLAS."""
    beside = Path(np.__file__).parent.parent / "numpy.libs"
    yield from (str(path) for path in beside.glob("*blas*"))
    if sys.platform.startswith("linux"):
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
        files = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
        yield from sorted(f for f in files if "blas" in f.lower() or "mkl_rt" in f)


@functools.cache
def _own_functions() -> Functions | None:
    for path in _loaded_libraries():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for setter, getter in _FUNCTIONS:
            if hasattr(library, setter) and hasattr(library, getter):
                return Path(path).name, getattr(library, setter), getattr(library, getter)
    return None


def set_num_threads(count: int) -> None:
    """Let the BLAS use ``count`` threads; warns where it cannot be told."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        functions = _own_functions()
        if functions is None:
            warnings.warn(
                "set_num_threads: NumPy's BLAS cannot be told its number of threads; install "
                "threadpoolctl, or set the BLAS' own variable before Python starts "
                "(such as OPENBLAS_NUM_THREADS)",
                stacklevel=4,
            )
        else:
            functions[1](count)
    else:
        threadpool_limits(limits=count, user_api="blas")


def describe() -> list[str]:
    """A line for each BLAS that is loaded, with its number of threads."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        functions = _own_functions()
        if functions is None:
            return ["BLAS: not known"]
        return [f"{functions[0]}: {functions[2]()} threads"]
    return [
        f"{info['internal_api']} {info.get('version')}: {info['num_threads']} threads"
        for info in threadpool_info()
        if info["user_api"] == "blas"
    ]
