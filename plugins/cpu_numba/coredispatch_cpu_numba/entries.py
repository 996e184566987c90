"""Compiled entries that make themselves when they are first called for.

Importing this does not import Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["Entries", "Loop"]


class Entries(dict[np.dtype[Any], Callable[..., None]]):
    """The entries of one loop by dtype, each made when first asked for.

    Args:
        module: a module of ``coredispatch_cpu_numba.loops``
        name: the loop in that module's ``LOOPS``
        parallel: the parallel entries instead of the serial ones
    """

    def __init__(self, module: str, name: str, parallel: bool = False) -> None:
        super().__init__()
        self.module = module
        self.name = name
        self.parallel = parallel

    def __missing__(self, dtype: np.dtype[Any]) -> Callable[..., None]:
        compilation = import_module(f"{__package__}.compilation")
        loops: Any = import_module(f"{__package__}.loops.{self.module}")
        entry: Callable[..., None] = compilation.compile_loop(
            f"{self.module}.{self.name}", loops.LOOPS[self.name], dtype.char, self.parallel
        )
        self[dtype] = entry
        return entry


class Loop:
    """One loop with its serial and its parallel entries.

    Args:
        module, name: as for :class:`Entries`
        split: the work, in elements, from which the parallel entry is used
    """

    def __init__(self, module: str, name: str, split: int) -> None:
        self.serial = Entries(module, name)
        self.parallel = Entries(module, name, parallel=True)
        self.split = split

    def __call__(
        self, dtype: np.dtype[Any], work: int, count: int, *arguments: Any, weight: int = 1
    ) -> None:
        """Run the loop over ``[0, count)``.

        Args:
            dtype: the dtype to run it for
            work: how many elements it will touch, which decides between serial and parallel
            count: what it counts: elements, rows, blocks
            weight: elements per counted unit, which decides how large the parts are
        """
        if work < self.split or count == 1:
            self.serial[dtype](*arguments, 0, count)
        else:
            part = min(16384, (work >> 3) + 1) // weight
            if weight == 1:
                part = (part + 63) & ~63
            self.parallel[dtype](*arguments, count, max(1, part))
