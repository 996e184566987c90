"""The library that large products of matrices go to instead of NumPy's BLAS.

``pip install 'coredispatch-cpu-numba[mkl]'`` brings Intel's MKL, which is taken where it is
installed, unless somebody in the process uses it already: a NumPy built upon MKL needs no other,
and would lose its threads. ``COREDISPATCH_BLAS`` says otherwise: ``numpy`` for NumPy's own, or the
file of another library that has the C interface of BLAS.

The library computes in the thread that calls it. Products are cut into blocks that the pack's own
threads share, so that ``cd.set_num_threads`` rules it, and nothing is left behind by a fork.
Importing this loads no library.
"""

from __future__ import annotations

import ctypes
import os
import site
import sys
from functools import cache as memoized
from pathlib import Path

__all__ = ["VARIABLE", "address", "describe", "library"]

VARIABLE = "COREDISPATCH_BLAS"
_MKL = ("lib/libmkl_rt.so*", "lib/libmkl_rt*.dylib", "Library/bin/mkl_rt*.dll")
#: how the C function is called, the names for integers of 64 bits first
_NAMES = ("cblas_{}_64", "cblas_{}64_", "scipy_cblas_{}64_", "cblas_{}", "scipy_cblas_{}")
#: what keeps a library to the thread that calls it: a function, and its argument
_ALONE = (
    ("MKL_Set_Threading_Layer", 1),  # sequential; else Intel's OpenMP, whose threads spin
    ("bli_thread_set_num_threads", 1),
    ("openblas_set_num_threads64_", 1),
    ("openblas_set_num_threads", 1),
)


def _is_in_use() -> bool:
    """Whether the process has loaded an MKL before us, as far as the system lists it."""
    try:
        return "libmkl_rt" in Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return False


def _installed_mkl() -> Path | None:
    """The file of an MKL beside this Python, as ``pip install mkl`` lays it."""
    places = [sys.prefix, sys.base_prefix]
    if site.ENABLE_USER_SITE:
        places.append(site.getuserbase())
    for place in dict.fromkeys(places):
        for pattern in _MKL:
            found = sorted(Path(place).glob(pattern))
            if found:
                return found[-1]
    return None


@memoized
def library() -> Path | None:
    """The file of the library; None for NumPy's BLAS.

    Raises ``RuntimeError`` where ``COREDISPATCH_BLAS`` names one that is not there.
    """
    asked = os.environ.get(VARIABLE, "").strip()
    if asked == "numpy":
        return None
    if not asked and _is_in_use():
        return None
    found = _installed_mkl() if asked in ("", "mkl") else Path(asked)
    if asked == "mkl" and found is None:
        raise RuntimeError(
            f"{VARIABLE}=mkl: no MKL is installed beside {sys.prefix}; "
            "pip install 'coredispatch-cpu-numba[mkl]'"
        )
    if asked and found is not None and not found.is_file():
        raise RuntimeError(
            f"{VARIABLE}={asked}: there is no such file; "
            "give 'numpy', 'mkl' or the file of a library with the C interface of BLAS"
        )
    return found


@memoized
def _loaded() -> ctypes.CDLL:
    path = library()
    assert path is not None
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as problem:
        raise RuntimeError(
            f"the BLAS {path} cannot be loaded ({problem}); {VARIABLE}=numpy goes without it"
        ) from problem
    for name, argument in _ALONE:
        if hasattr(loaded, name):
            getattr(loaded, name)(argument)
    return loaded


@memoized
def address(name: str) -> int:
    """Where the library's function is, such as ``"sgemm"``; loads the library.

    Raises ``RuntimeError`` where the library has none or cannot be loaded.
    """
    loaded = _loaded()
    for form in _NAMES:
        function = getattr(loaded, form.format(name), None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise RuntimeError(
        f"the BLAS {library()} has no cblas_{name}: {VARIABLE} asks for a library with the C "
        f"interface of BLAS; {VARIABLE}=numpy goes without one"
    )


def describe() -> str:
    """Which one it is, for ``coredispatch info``."""
    path = library()
    return "NumPy's" if path is None else str(path)
