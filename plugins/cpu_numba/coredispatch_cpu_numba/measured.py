"""Which algorithm was the fastest, by what it was measured for: in memory and on disk.

The file lies beside the compiled kernels and holds what was measured on one kind of machine with
one version of the kernels. A file of another one, or a damaged one, counts as empty. Two processes
may write: each reads what is there before it writes all, and the file is replaced at once. What one
of them loses is measured again.

Importing this does not import Numba.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
import threading
from functools import cache
from pathlib import Path

import numpy as np

from . import cache_place

__all__ = ["best", "forget", "keep", "machine"]

_NAME = "fastest.json"
_found: dict[str, str] = {}
_read = False
_lock = threading.Lock()


@cache
def machine() -> str:
    """The processor, what it can do, how many there are, and the version of the kernels."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(
            (x.partition(":")[2].strip() for x in lines if x.startswith("model name")), name
        )
    features = getattr(np._core._multiarray_umath, "__cpu_features__", {})
    able = ",".join(sorted(feature for feature, there in features.items() if there))
    forced = os.environ.get("NUMBA_CPU_NAME", "")
    return f"{name} {able} {forced} {os.cpu_count()} {cache_place.source_digest()[:16]}"


def _path() -> Path | None:
    place = cache_place.directory()
    return None if place is None else place / _NAME


def _on_disk() -> dict[str, str]:
    path = _path()
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict) or content.get("machine") != machine():
        return {}
    entries = content.get("fastest")
    if not isinstance(entries, dict):
        return {}
    return {k: v for k, v in entries.items() if isinstance(v, str)}


def best(key: str) -> str | None:
    """What was the fastest for ``key``; None where it was not measured yet."""
    global _read
    if not _read:
        with _lock:
            if not _read:
                for known, name in _on_disk().items():
                    _found.setdefault(known, name)
                _read = True
    return _found.get(key)


def keep(key: str, name: str) -> None:
    """Note that ``name`` was the fastest for ``key``, on disk as well where there is a place."""
    with _lock:
        _found[key] = name
        path = _path()
        if path is None:
            return
        entries = {**_on_disk(), **_found}
        with contextlib.suppress(OSError):
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=path.parent, delete=False
            ) as file:
                json.dump({"machine": machine(), "fastest": entries}, file, indent=1)
            os.replace(file.name, path)


def forget() -> None:
    """Measure everything anew: what was found is forgotten, here and on disk."""
    global _read
    with _lock:
        _found.clear()
        _read = True
        path = _path()
        if path is not None:
            path.unlink(missing_ok=True)
