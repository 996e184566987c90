"""The on-disk cache of compiled kernels: where it lies and when an entry is stale.

Numba's own ``cache=True`` keys an entry on a function's bytecode and a pickle of its closure.
Kernels here are closures over other compiled functions, whose pickles differ from process to
process, so that key would never match; and it does not notice a change in another file of this
package. Here an entry is keyed on the kernel's name, its signature and the CPU (model and
features), and is valid for one content of the package's source files and one Numba version.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from contextlib import suppress
from typing import Any

from numba.core import caching
from numba.core.compiler import CompileResult

from .cache_place import DIRECTORY_VARIABLE, directory, source_digest

__all__ = ["DIRECTORY_VARIABLE", "directory", "enable", "is_cached"]


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
        return source_digest()

    def reduce(self, result: Any) -> Any:
        return result._reduce()

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        return CompileResult._rebuild(target_context, *payload)

    def check_cachable(self, result: Any) -> bool:
        return not result.lifted and not result.library.has_dynamic_globals


class _Files(caching.IndexDataCacheFile):
    """Numba's files, in which an entry says what it is: one that is damaged counts as none.

    Two processes that write to one index at once may leave it with the name of another's code.
    A disk that is full, or a directory that is gone, costs the entry and not the call.
    """

    def save(self, key: Any, data: Any) -> None:
        whole = self._dump(data)
        with suppress(OSError):
            super().save(key, (repr(key), hashlib.sha256(whole).digest(), whole))

    def load(self, key: Any) -> Any:
        try:
            name, digest, whole = super().load(key)
            if name != repr(key) or hashlib.sha256(whole).digest() != digest:
                return None
            return pickle.loads(whole)
        except Exception:  # whatever unpickling makes of damaged bytes; None where there is nothing
            return None

    def _load_index(self) -> dict[Any, str]:
        try:
            found: dict[Any, str] = super()._load_index()
        except Exception:
            return {}
        return found


class _KernelCache(caching.Cache):
    def __init__(self, py_func: Any) -> None:
        self._impl_class = lambda function: _Store(function.__qualname__)
        super().__init__(py_func)
        store = self._impl
        self._cache_file = _Files(
            self._cache_path, store.filename_base, store.locator.get_source_stamp()
        )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return str(sig), codegen.magic_tuple()


def enable(dispatcher: Any) -> None:
    """Let ``dispatcher`` load its compiled code from disk, and save what it compiles.

    The ``__qualname__`` of its function names the entry, so it must be unique.
    """
    if directory() is not None:
        dispatcher._cache = _KernelCache(dispatcher.py_func)


def is_cached(dispatcher: Any, signature: Any) -> bool:
    """Whether the disk has the compiled code of ``dispatcher`` for ``signature``."""
    index = getattr(dispatcher._cache, "_cache_file", None)
    if index is None:
        return False
    from numba.core.registry import cpu_target

    codegen = cpu_target.target_context.codegen()
    key = dispatcher._cache._index_key(signature, codegen)
    return key in index._load_index()
