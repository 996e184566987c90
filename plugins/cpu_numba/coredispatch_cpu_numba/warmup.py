"""Compiling every kernel into the disk cache, by as many processes as there are CPUs."""

from __future__ import annotations

import gc
import os
import pkgutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from importlib import import_module
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from coredispatch.plugin import dtypes as plugin_dtypes
from coredispatch.plugin import numpy_dtype

from . import cache_place

__all__ = ["compile_asked", "jobs", "run"]

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
            names += getattr(module, "FUNCTIONS", ()) if char == "f" else ()  # for all dtypes
            found += [(place, name, dtype) for name in names]
    return found


def compile_asked(asked: Iterable[str], tell: Callable[[str], Any]) -> None:
    """Every job of which there is a line ``module name dtype``; ``tell`` is called after each."""
    from .entries import Loop

    gc.freeze()
    gc.set_threshold(200_000)  # the compiler makes much and drops little
    for line in asked:
        module, name, dtype = line.split()
        loops: Any = import_module(f"{__package__}.loops.{module}")
        if name in getattr(loops, "FUNCTIONS", ()):
            loops.compile_function(name)
        else:
            own = numpy_dtype(getattr(plugin_dtypes, dtype))
            Loop(module, name, 0).compiled.made(own, False)
        tell(f"{module}.{name} {dtype}")


class _Handout:
    """Jobs for processes that ask for one after the other.

    A process is given jobs of one module that compute with the same dtype for as long as there are
    any: they are made of the same functions, which each process compiles for itself.
    """

    def __init__(self, wanted: list[tuple[str, str, str]]) -> None:
        groups: dict[tuple[str, bool], deque[str]] = {}
        for module, name, dtype in wanted:
            group = groups.setdefault((module, dtype == "float64"), deque())
            group.append(f"{module} {name} {dtype}")
        self.lock = Lock()
        self.groups = sorted(groups.values(), key=len)
        self.given: dict[int, deque[str]] = {}

    def next(self, process: int) -> str | None:
        with self.lock:
            group = self.given.get(process)
            if not group and self.groups:
                group = self.groups.pop()
            if not group:  # help another process
                group = max(self.given.values(), key=len, default=None)
            if not group:
                return None
            self.given[process] = group
            return group.popleft()


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
    wanted = jobs(dtypes, only)
    count, total = _processes(), len(wanted)
    lines: SimpleQueue[str | None] = SimpleQueue()
    handout = _Handout(wanted)
    command = [sys.executable, "-m", str(__package__), "--asked"]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]

    def serve(child: subprocess.Popen[str]) -> None:
        assert child.stdin is not None and child.stdout is not None
        try:
            with child:  # closes the pipes, and waits
                while job := handout.next(child.pid):
                    print(job, file=child.stdin, flush=True)
                    line = child.stdout.readline()
                    if not line:  # it failed, and said why
                        break
                    lines.put(line.strip())
        except BrokenPipeError:
            child.wait()
        finally:
            lines.put(None)

    for child in children:
        Thread(target=serve, args=(child,), daemon=True).start()
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
