"""Switches between threads inside of a kernel, wherever its Python code may be left.

Python lets another thread run when some microseconds are over, which short kernels rarely meet at
the one place that matters: between filling memory that threads share and reading it.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import coredispatch as cd

from .subject import Subject

#: how many instructions of a kernel are one at which its thread waits, and how long it waits
ONE_OF, PAUSE = 4, 1e-6
#: waits of a thread in one block: a kernel that loops over elements waits at its first ones
MOST = 200


def kernel_folders(subject: Subject, op: str) -> tuple[str, ...]:
    """Where the code that belongs to the kernel of ``op`` lies: not the framework's or NumPy's."""
    kernel, home = subject.kernel(op), subject.home
    found = {Path(cd.__file__).parent / "backends"}
    if home is not None:
        found.add(home if home.is_dir() else home.parent)
    if kernel is not None and kernel.file:
        found.add(Path(kernel.file).parent)
    return tuple(map(str, found))


class interleaved:
    """A ``with`` block in which the current thread waits at drawn instructions of some files."""

    def __init__(self, folders: tuple[str, ...], seed: int) -> None:
        self.folders, self.draw, self.left = folders, random.Random(seed).random, MOST

    def __enter__(self) -> interleaved:
        self.before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def _called(self, frame: Any, event: str, argument: Any) -> Any:
        if self.left <= 0 or not frame.f_code.co_filename.startswith(self.folders):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._reached

    def _reached(self, frame: Any, event: str, argument: Any) -> Any:
        if self.left > 0 and self.draw() * ONE_OF < 1:
            self.left -= 1
            time.sleep(PAUSE)  # the one wait for which the interpreter lets another thread run
        return self._reached
