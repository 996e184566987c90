"""The on-disk cache of compiled kernels: where it lies and when an entry is stale.

Numba's own ``cache=True`` keys an entry on a function's bytecode and a pickle of its closure.
Kernels here are closures over other compiled functions, whose pickles differ from process to
process, so that key would never match; and it does not notice a change in another file of this
package. Here an entry is keyed on the kernel's name, its signature and the CPU (model and
features), and is valid for one content of the package's source files and one Numba version.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import caching
from numba.core.compiler import CompileResult

__all__ = ["DIRECTORY_VARIABLE", "directory", "enable"]

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
_UNCOMPILED = {"__init__.py", "arrays.py", "entries.py", "thread_count.py", "kernels"}


@cache
def _source_digest() -> str:
    """Of the source files that compiled code is made from."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] not in _UNCOMPILED:
            digest.update(relative.as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


class _Store:
    """What Numba's cache driver asks for: a place, a stamp, a file name, how to serialize."""

    def __init__(self, name: str) -> None:
        self.filename_base = f"{name}.{sys.implementation.cache_tag}"
        self.locator = self

    def get_cache_path(self) -> str:
        return str(directory())

    def ensure_cache_path(self) -> None:
        """``directory`` made it."""

    def get_source_stamp(self) -> str:
        return _source_digest()

    def reduce(self, result: Any) -> Any:
        return result._reduce()

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        return CompileResult._rebuild(target_context, *payload)

    def check_cachable(self, result: Any) -> bool:
        return not result.lifted and not result.library.has_dynamic_globals


class _KernelCache(caching.Cache):
    def __init__(self, py_func: Any) -> None:
        self._impl_class = lambda function: _Store(function.__qualname__)
        super().__init__(py_func)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return str(sig), codegen.magic_tuple()


def enable(dispatcher: Any) -> None:
    """Let ``dispatcher`` load its compiled code from disk, and save what it compiles.

    The ``__qualname__`` of its function names the entry, so it must be unique.
    """
    if directory() is not None:
        dispatcher._cache = _KernelCache(dispatcher.py_func)
