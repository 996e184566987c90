"""Compiling every kernel into the disk cache, by as many processes as there are CPUs."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from queue import SimpleQueue
from threading import Thread
from typing import Any

from coredispatch.plugin import dtypes as plugin_dtypes
from coredispatch.plugin import numpy_dtype

from . import cache_place

__all__ = ["compile_share", "jobs", "run"]

DTYPES = ("float32", "float64", "bfloat16", "float16", "uint8")
_CHARS = {"float32": "f", "float64": "d", "bfloat16": "E", "float16": "e", "uint8": "B"}


def jobs(dtypes: tuple[str, ...] = DTYPES, only: str = "") -> list[tuple[str, str, str]]:
    """``(module, name, dtype)`` of everything there is to compile.

    ``only`` names a family or a module of it (``norm``, ``norm.batch_norm``); ValueError where
    there is none.
    """
    package = import_module(f"{__package__}.loops")
    start = f"{package.__name__}."
    modules = [i.name.removeprefix(start) for i in pkgutil.walk_packages(package.__path__, start)]
    chosen = [m for m in modules if not only or m == only or m.startswith(f"{only}.")]
    if not chosen:
        raise ValueError(f"no loops are called {only!r}; there are {', '.join(modules)}")
    found = []
    for place in chosen:
        module: Any = import_module(start + place)
        for dtype in dtypes:
            char = _CHARS[dtype]
            names = [n for n, loop in getattr(module, "LOOPS", {}).items() if char in loop.dtypes]
            names += getattr(module, "FUNCTIONS", ()) if char in "fd" else ()
            found += [(place, name, dtype) for name in names]
    return found


def compile_share(
    share: int, of: int, dtypes: tuple[str, ...], only: str, tell: Callable[[str], Any]
) -> None:
    """Every ``of``-th job, beginning with number ``share``; ``tell`` is called after each."""
    from .entries import Loop
    from .loops.small import FUNCTIONS, compile_function

    for module, name, dtype in jobs(dtypes, only)[share::of]:
        if module == "small" and name in FUNCTIONS:
            compile_function(name, DTYPES.index(dtype))
        else:
            own = numpy_dtype(getattr(plugin_dtypes, dtype))
            Loop(module, name, 0).compiled.made(own, False)
        tell(f"{module}.{name} {dtype}")


def _processes() -> int:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(count or 1, 8))


def run(
    report: Callable[[int, int, str], None], dtypes: tuple[str, ...] = DTYPES, only: str = ""
) -> str:
    """Compile what the disk does not have, and note that it has everything.

    ``report(done, total, name)`` is called after each kernel. Returns a line that says what was
    done. Raises RuntimeError where no directory is writable, or a kernel does not compile.
    """
    place = cache_place.directory()
    if place is None:
        raise RuntimeError(
            f"no directory for compiled kernels is writable; set {cache_place.DIRECTORY_VARIABLE}"
        )
    count, total = _processes(), len(jobs(dtypes, only))
    lines: SimpleQueue[str | None] = SimpleQueue()
    command = [sys.executable, "-m", str(__package__), "--dtypes", ",".join(dtypes)]
    command += ["--only", only, "--share"]
    children = [
        subprocess.Popen([*command, f"{i}/{count}"], stdout=subprocess.PIPE, text=True)
        for i in range(count)
    ]

    def read(child: subprocess.Popen[str]) -> None:
        with child:  # closes the pipe, and waits
            for line in child.stdout or ():
                lines.put(line.strip())
        lines.put(None)

    for child in children:
        Thread(target=read, args=(child,), daemon=True).start()
    done, running = 0, count
    while running:
        line = lines.get()
        if line is None:
            running -= 1
        else:
            done += 1
            report(done, total, line)
    if any(child.returncode for child in children):
        raise RuntimeError("a kernel could not be compiled; the lines above say which and why")
    if dtypes == DTYPES and not only:
        cache_place.mark_warm()
    return f"{total} kernels in {place}"
