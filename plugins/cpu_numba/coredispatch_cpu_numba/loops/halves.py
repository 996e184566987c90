"""Conversions between float32 and half precision."""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import item, part, put

__all__ = ["LOOPS"]


def _converted(char: str) -> Callable[..., None]:
    def loop(x, out, lo, hi):
        full_vectors()
        x, out = part(x, lo, hi), part(out, lo, hi)
        for i in range(x.size):
            put(out, i, item(x, i))

    return loop


LOOPS: dict[str, Loop] = {
    "narrow": Loop("wa", _converted, dtypes="Ee"),
    "widen": Loop("aw", _converted, dtypes="Ee"),
}
