"""``python -m coredispatch_cpu_numba``: compile every kernel into the disk cache.

For images and machines whose first call should not wait. Options: ``--dtype float32`` (or
``float64``) for one dtype only.
"""

from __future__ import annotations

import argparse
import pkgutil
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np

from .entries import Loop


def loops() -> list[tuple[str, str]]:
    """``(module, name)`` of every loop there is."""
    package = import_module(f"{__package__}.loops")
    found = []
    for info in pkgutil.iter_modules(package.__path__):
        module: Any = import_module(f"{package.__name__}.{info.name}")
        found += [(info.name, name) for name in getattr(module, "LOOPS", ())]
    return found


def progress(items: list[Any]) -> Iterable[Any]:
    """``items`` with a progress bar, where tqdm is installed and somebody is looking."""
    try:
        from tqdm import tqdm
    except ImportError:
        return items
    bar: Iterable[Any] = tqdm(items, unit="kernel", disable=not sys.stderr.isatty())
    return bar


def main() -> int:
    """Compile what is not in the cache yet; returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}")
    parser.add_argument("--dtype", choices=["float32", "float64"])
    options = parser.parse_args()
    from . import cache

    if cache.directory() is None:
        print(f"no directory is writable; set {cache.DIRECTORY_VARIABLE}", file=sys.stderr)
        return 1
    dtypes = [np.dtype(name) for name in ("float32", "float64") if options.dtype in (None, name)]
    todo = [(module, name, dtype) for module, name in loops() for dtype in dtypes]
    for module, name, dtype in progress(todo):
        Loop(module, name, 0).compiled[dtype]
    print(f"{len(todo)} kernels in {cache.directory()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
