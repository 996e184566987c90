"""Loops as the kernels call them; compiled when they are first called for.

Importing this does not import Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from . import background, thread_count

__all__ = ["Loop"]

#: so many times the work that is worth sharing is worth waking a sleeping thread for
_LONG = 16


class _Compiled(dict[np.dtype[Any], tuple[Callable[..., None], int, Callable[[], int]]]):
    """Launcher, task and the pool's address, by dtype."""

    def __init__(self, module: str, name: str) -> None:
        super().__init__()
        self.module = module
        self.name = name

    def __missing__(self, dtype: np.dtype[Any]) -> Any:
        return background.made_by(partial(self.made, dtype), (self.module, self.name, dtype.char))

    def made(self, dtype: np.dtype[Any], cached_only: bool) -> Any:
        """What is kept for ``dtype``; raises NotReady where it is not on disk but should be."""
        compilation = import_module(f"{__package__}.compilation")
        loops: Any = import_module(f"{__package__}.loops.{self.module}")
        threads: Any = import_module(f"{__package__}.threads")
        launch, task = compilation.compile_loop(
            f"{self.module}.{self.name}", loops.LOOPS[self.name], dtype.char, cached_only
        )
        threads.prepare()
        self[dtype] = launch, task, threads.address
        return self[dtype]


class Loop:
    """One loop of ``coredispatch_cpu_numba.loops``.

    Args:
        module: the module below that package, such as ``norm.batch_norm``
        name: the loop in the module's ``LOOPS``
        split: the work, in elements, from which it is shared among threads
    """

    def __init__(self, module: str, name: str, split: int) -> None:
        self.compiled = _Compiled(module, name)
        self.split = split
        self.long = _LONG * split

    def __call__(
        self,
        dtype: np.dtype[Any],
        work: int,
        count: int,
        *arguments: Any,
        weight: int = 1,
        grain: int = 0,
    ) -> None:
        """Run the loop over ``[0, count)``.

        Args:
            dtype: the dtype to run it for
            work: how many elements it will touch, which decides whether threads share it
            count: what it counts: elements, rows, blocks
            weight: elements per counted unit, which decides how large the parts are
            grain: how large they are, if that is decided elsewhere
        """
        launch, task, pool = self.compiled[dtype]
        if work < self.split or count == 1 or thread_count.wanted == 1:
            launch(*arguments, count, count, task, 0)
        else:
            address = pool()
            if work >= self.long and address:
                address += 1  # sleeping helpers are woken before the first part is done
            launch(*arguments, count, grain or _part(work, weight), task, address)

    def step(
        self, dtype: np.dtype[Any], work: int, count: int, weight: int = 1, grain: int = 0
    ) -> tuple[int, int]:
        """The address of the task for ``dtype``, and how large the parts of a call would be.

        What is not compiled yet is compiled at once.
        """
        if dtype not in self.compiled:
            self.compiled.made(dtype, False)
        task = self.compiled[dtype][1]
        return task, count if work < self.split else min(count, grain or _part(work, weight))


def _part(work: int, weight: int) -> int:
    """How much one thread does at a time."""
    part = min(16384, (work >> 3) + 1) // weight
    return max(1, (part + 63) & ~63 if weight == 1 else part)
