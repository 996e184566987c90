"""Columns of windows added into planes, the adjoint of taking them out. Counts planes."""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import add_to, fill, item, part, put

__all__ = ["LOOPS"]


def _added(char: str) -> Callable[..., None]:
    """Position after position of the window, in its order."""
    zero = elementary[char].T(0.0)

    @inlined
    def add_eight(result, row, z):
        """All are read before one is written, which makes vectors of rows that are short."""
        a, b = item(result, z) + item(row, z), item(result, z + 1) + item(row, z + 1)
        c, d = item(result, z + 2) + item(row, z + 2), item(result, z + 3) + item(row, z + 3)
        e, f = item(result, z + 4) + item(row, z + 4), item(result, z + 5) + item(row, z + 5)
        g, h = item(result, z + 6) + item(row, z + 6), item(result, z + 7) + item(row, z + 7)
        put(result, z, a)
        put(result, z + 1, b)
        put(result, z + 2, c)
        put(result, z + 3, d)
        put(result, z + 4, e)
        put(result, z + 5, f)
        put(result, z + 6, g)
        put(result, z + 7, h)

    def loop(x, numbers, out, lo, hi):
        full_vectors()
        h, w, oh, ow = numbers[0], numbers[1], numbers[2], numbers[3]
        kh, kw, sh, sw = numbers[4], numbers[5], numbers[6], numbers[7]
        ph, pw, dh, dw = numbers[8], numbers[9], numbers[10], numbers[11]
        for plane in range(lo, hi):
            target = part(out, plane * h * w, (plane + 1) * h * w)
            fill(target, zero)
            for ky in range(kh):
                for kx in range(kw):
                    begin = kx * dw - pw
                    first = max(0, (sw - 1 - begin) // sw)
                    stop = max(first, min(ow, (w - 1 - begin) // sw + 1))
                    for i in range(oh):
                        y = i * sh - ph + ky * dh
                        if y < 0 or y >= h:
                            continue
                        base = (((plane * kh + ky) * kw + kx) * oh + i) * ow
                        row = part(x, base + first, base + stop)
                        if sw == 1:
                            at = y * w + begin + first
                            result = part(target, at, at + row.size)
                            eights = row.size // 8 * 8
                            for z in range(0, eights, 8):
                                add_eight(result, row, z)
                            for z in range(eights, row.size):
                                put(result, z, item(result, z) + item(row, z))
                        else:
                            for z in range(row.size):
                                add_to(target, y * w + begin + (first + z) * sw, item(row, z))

    return loop


LOOPS: dict[str, Loop] = {"added": Loop("aia", _added)}
