"""Numbers rounded to integers of 8 bits and back, and what training has in their place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import choose, fabs, full_vectors, rint
from coredispatch_cpu_numba.spans import item, part, put

__all__ = ["LOOPS"]

_BLOCK = 256
#: Within the range of 8 bits, a product with the inverse scale in float32 is off by less than
#: 4e-5 steps. Nearer than this to an integer, it is therefore rounded as the quotient.
_SURE = 0.49995


def _store(char: str) -> Callable[..., None]:
    """``low`` and ``high`` are those of the integers without ``zero``.

    A block in which a number lies in the middle between two integers is computed anew, in float64,
    as the operator is defined. ``bad[0]`` becomes 1 where one is NaN.
    """
    sure = np.float32(_SURE)

    def loop(x, inverse, zero, low, high, scale, out, bad, lo, hi):
        full_vectors()
        nans = np.int32(0)
        for start in range(lo, hi, _BLOCK):
            some = part(x, start, min(hi, start + _BLOCK))
            stored = part(out, start, min(hi, start + _BLOCK))
            doubts = np.int32(0)
            for i in range(some.size):
                steps = item(some, i) * inverse
                steps = choose(steps < low, low, steps)
                steps = choose(steps > high, high, steps)
                whole = rint(steps)
                doubts += choose(fabs(steps - whole) < sure, np.int32(0), np.int32(1))
                put(stored, i, np.uint8(np.int32(whole + zero)))
            if doubts:
                least, most = np.float64(low), np.float64(high)
                for i in range(some.size):
                    steps = np.float64(item(some, i)) / scale
                    nans += choose(steps == steps, np.int32(0), np.int32(1))
                    steps = rint(choose(steps > least, steps, least))
                    steps = choose(steps > most, most, steps)
                    put(stored, i, np.uint8(np.int32(steps + np.float64(zero))))
        if nans:
            bad[0] = 1

    return loop


def _restore(char: str) -> Callable[..., None]:
    def loop(x, signed, zero, scale, out, lo, hi):
        full_vectors()
        x, out = part(x, lo, hi), part(out, lo, hi)
        if signed:
            for i in range(x.size):
                put(out, i, (np.float32(np.int8(item(x, i))) - zero) * scale)
        else:
            for i in range(x.size):
                put(out, i, (np.float32(item(x, i)) - zero) * scale)

    return loop


def _pretend(char: str) -> Callable[..., None]:
    """What the integers stand for; NaN stays."""

    def loop(x, scale, zero, low, high, out, lo, hi):
        full_vectors()
        x, out = part(x, lo, hi), part(out, lo, hi)
        for i in range(x.size):
            steps = rint(item(x, i) / scale + zero)
            steps = choose(steps < low, low, steps)
            steps = choose(steps > high, high, steps)
            put(out, i, (steps - zero) * scale)

    return loop


def _pretend_backward(char: str) -> Callable[..., None]:
    nothing = elementary[char].T(0.0)

    def loop(grad, x, scale, zero, low, high, out, lo, hi):
        full_vectors()
        grad, x, out = part(grad, lo, hi), part(x, lo, hi), part(out, lo, hi)
        for i in range(x.size):
            steps = rint(item(x, i) / scale + zero)
            put(out, i, choose((steps < low) | (steps > high), nothing, item(grad, i)))

    return loop


LOOPS: dict[str, Loop] = {
    "store": Loop("asssseui", _store, dtypes="f"),
    "restore": Loop("unssa", _restore, dtypes="f"),
    "pretend": Loop("assssa", _pretend),
    "pretend_backward": Loop("aassssa", _pretend_backward),
}
