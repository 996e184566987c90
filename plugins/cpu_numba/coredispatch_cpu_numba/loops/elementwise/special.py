"""Loops of special functions, ``(x, out)``.

Where an argument below 0 takes a reflection, a block is looked through for one first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary import special
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import item, part, put

__all__ = ["LOOPS"]

_BLOCK = 256


def _everywhere(f: Callable[..., Any], single: Callable[..., Any] | None = None) -> Loop:
    """``f`` in float64, or in float32 ``single``."""

    def build(char: str) -> Callable[..., None]:
        T = np.float32 if char == "f" else np.float64
        if char == "f" and single is not None:
            rounded = single
        else:
            rounded = inlined(lambda x: T(f(np.float64(x))))

        def loop(x, out, lo, hi):
            full_vectors()
            x, out = part(x, lo, hi), part(out, lo, hi)
            for i in range(x.size):
                put(out, i, rounded(item(x, i)))

        return loop

    return Loop("aa", build)


def _mostly(positive: Callable[..., Any], f: Callable[..., Any]) -> Loop:
    """``f``, and ``positive`` for blocks of numbers above 0."""

    def build(char: str) -> Callable[..., None]:
        T = np.float32 if char == "f" else np.float64

        @compiled()
        def each(x, out):
            full_vectors()
            for i in range(x.size):
                put(out, i, T(f(np.float64(item(x, i)))))

        @inlined
        def some_negative(x):
            found = np.int32(0)
            for i in range(x.size):
                found |= np.int32(not item(x, i) > T(0.0))
            return found != 0

        def loop(x, out, lo, hi):
            full_vectors()
            for start in range(lo, hi, _BLOCK):
                stop = min(start + _BLOCK, hi)
                a, o = part(x, start, stop), part(out, start, stop)
                if some_negative(a):
                    each(a, o)
                else:
                    for i in range(a.size):
                        put(o, i, T(positive(np.float64(item(a, i)))))

        return loop

    return Loop("aa", build)


LOOPS: dict[str, Loop] = {
    "digamma": _mostly(special.digamma_positive, special.digamma),
    "erfc": _everywhere(special.erfc, special.erfc_single),
    "erfcx": _everywhere(special.erfcx),
    "erfinv": _everywhere(special.erfinv, special.erfinv_single),
    "lgamma": _mostly(special.lgamma_positive, special.lgamma),
    "log1p": _everywhere(special.log1p(np.float64), special.log1p(np.float32)),
    "ndtr": _everywhere(special.ndtr, special.ndtr_single),
    "sinc": _everywhere(special.sinc),
    "tanhshrink": _everywhere(special.tanhshrink),
    "trigamma": _mostly(special.trigamma_positive, special.trigamma),
}
