"""Where compiled kernels lie on disk, and which sources they were made from.

Importing this does not import Numba.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["DIRECTORY_VARIABLE", "directory", "is_warm", "mark_warm", "source_digest"]

#: names a directory for the compiled kernels; the empty string turns the disk cache off
DIRECTORY_VARIABLE = "COREDISPATCH_NUMBA_CACHE_DIR"
_NAME = "coredispatch_cpu_numba"


def _candidates() -> list[Path]:
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen is not None:
        return [Path(chosen)] if chosen else []
    numba_wide = os.environ.get("NUMBA_CACHE_DIR")
    paths = [Path(numba_wide) / _NAME] if numba_wide else []
    paths.append(Path(__file__).parent / "__pycache__" / "kernels")
    if sys.platform == "win32":
        user = os.environ.get("LOCALAPPDATA")
    else:
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if user:
        paths.append(Path(user) / _NAME)
    owner = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return [*paths, Path(tempfile.gettempdir()) / f"{_NAME}-{owner}"]


def _usable(path: Path) -> bool:
    """Writable, and written by nobody else: loading an entry executes what it contains."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid"):
            status = path.stat()
            if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o002:
                return False
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


@cache
def directory() -> Path | None:
    """The first usable directory, or None: kernels are then compiled anew in each process.

    In order: ``$COREDISPATCH_NUMBA_CACHE_DIR``, ``$NUMBA_CACHE_DIR``, this package's
    ``__pycache__``, the user's cache directory, a private folder in the temporary directory.
    """
    return next((path for path in _candidates() if _usable(path)), None)


# What runs before a kernel is compiled, and leaves no trace in it.
_UNCOMPILED = {
    "__init__.py",
    "__main__.py",
    "arrays.py",
    "background.py",
    "cache_place.py",
    "entries.py",
    "kernels",
    "measured.py",
    "thread_count.py",
    "warmup.py",
}


@cache
def source_digest() -> str:
    """Of the source files that compiled code is made from."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] not in _UNCOMPILED:
            digest.update(relative.as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _marker() -> str:
    return f"warm-{sys.implementation.cache_tag}-{source_digest()[:16]}"


def is_warm() -> bool:
    """Whether ``coredispatch warmup`` has compiled all kernels of these sources."""
    place = directory()
    if place is None or not any(place.glob("warm-*")):
        return False
    return (place / _marker()).exists()


def mark_warm() -> None:
    """Note that all kernels are in the cache."""
    place = directory()
    if place is not None:
        (place / _marker()).touch()
