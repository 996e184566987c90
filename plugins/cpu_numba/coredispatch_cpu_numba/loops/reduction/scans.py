"""Cumulative sums and products over the middle dimension of ``(outer, n, inner)``.

They are carried in float64. *Rows* (``inner == 1``) run ``CHAINS`` at a time, side by side: each
waits for its own last sum only. A few long rows are cut into as many pieces, whose totals come
first; the pieces depend on the shape alone. *Columns* vectorize across the ``inner`` elements.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.layout import CHAINS
from coredispatch_cpu_numba.spans import copy, fill, part, row_of

__all__ = ["LOOPS"]


def _scan(product: bool) -> tuple[Callable[..., Callable[..., None]], ...]:
    @inlined
    def join(total, value):
        return total * value if product else total + value

    start = 1.0 if product else 0.0

    def rows(char: str) -> Callable[..., None]:
        """Counts groups of ``CHAINS`` rows."""

        def loop(x, n, out, lo, hi):
            count = x.size // n
            for group in range(lo, hi):
                base, stop = group * CHAINS, min(count, group * CHAINS + CHAINS)
                if stop - base == CHAINS:
                    r = base * n
                    a = b = c = d = e = f = g = h = start
                    for i in range(n):
                        a = join(a, np.float64(x[r + i]))
                        b = join(b, np.float64(x[r + n + i]))
                        c = join(c, np.float64(x[r + 2 * n + i]))
                        d = join(d, np.float64(x[r + 3 * n + i]))
                        e = join(e, np.float64(x[r + 4 * n + i]))
                        f = join(f, np.float64(x[r + 5 * n + i]))
                        g = join(g, np.float64(x[r + 6 * n + i]))
                        h = join(h, np.float64(x[r + 7 * n + i]))
                        out[r + i] = a
                        out[r + n + i] = b
                        out[r + 2 * n + i] = c
                        out[r + 3 * n + i] = d
                        out[r + 4 * n + i] = e
                        out[r + 5 * n + i] = f
                        out[r + 6 * n + i] = g
                        out[r + 7 * n + i] = h
                    continue
                for r in range(base, stop):
                    total = start
                    row, result = row_of(x, r, n), row_of(out, r, n)
                    for i in range(n):
                        total = join(total, np.float64(row[i]))
                        result[i] = total

        return loop

    def pieces(char: str) -> Callable[..., None]:
        """Counts rows, each cut into ``CHAINS`` pieces."""

        def loop(x, n, out, lo, hi):
            length = n // CHAINS
            totals = np.empty(CHAINS, np.float64)
            for r in range(lo, hi):
                row, result = row_of(x, r, n), row_of(out, r, n)
                fill(totals, start)
                for i in range(length):
                    for chain in range(CHAINS):
                        totals[chain] = join(totals[chain], np.float64(row[chain * length + i]))
                before = start
                for chain in range(CHAINS):
                    totals[chain], before = before, join(before, totals[chain])
                for i in range(length):
                    for chain in range(CHAINS):
                        totals[chain] = join(totals[chain], np.float64(row[chain * length + i]))
                        result[chain * length + i] = totals[chain]
                total = before
                for i in range(CHAINS * length, n):
                    total = join(total, np.float64(row[i]))
                    result[i] = total

        return loop

    def columns(char: str) -> Callable[..., None]:
        """Counts tiles of ``tile`` columns, ``tiles`` of them in each ``(n, inner)`` matrix."""

        def loop(x, n, inner, tile, tiles, out, lo, hi):
            full_vectors()
            running = np.empty(tile, np.float64)
            for unit in range(lo, hi):
                left = unit % tiles * tile
                width = min(tile, inner - left)
                base = unit // tiles * n * inner + left
                total = part(running, 0, width)
                fill(total, start)
                for i in range(n):
                    row = part(x, base + i * inner, base + i * inner + width)
                    result = part(out, base + i * inner, base + i * inner + width)
                    for j in range(width):
                        total[j] = join(total[j], np.float64(row[j]))
                        result[j] = total[j]

        return loop

    return rows, pieces, columns


def _running(char: str) -> Callable[..., None]:
    """Running extremes and where the latest of equals is; counts the ``outer`` matrices.

    A NaN is more extreme than every number.
    """

    def loop(x, n, inner, upward, out, places, lo, hi):
        full_vectors()
        for o in range(lo, hi):
            if inner == 1:
                row = row_of(x, o, n)
                values, where = row_of(out, o, n), row_of(places, o, n)
                best, at = row[0], 0
                if upward == 1:
                    for i in range(n):
                        new = row[i]
                        if not new < best and (best == best or new != new):
                            best, at = new, i
                        values[i] = best
                        where[i] = at
                else:
                    for i in range(n):
                        new = row[i]
                        if not new > best and (best == best or new != new):
                            best, at = new, i
                        values[i] = best
                        where[i] = at
                continue
            first = o * n * inner
            copy(part(out, first, first + inner), part(x, first, first + inner))
            fill(part(places, first, first + inner), 0)
            for i in range(1, n):
                here = first + i * inner
                row, values = part(x, here, here + inner), part(out, here, here + inner)
                before = part(out, here - inner, here)
                where, earlier = part(places, here, here + inner), part(places, here - inner, here)
                for j in range(inner):
                    old, new = before[j], row[j]
                    better = (new >= old if upward == 1 else new <= old) | (new != new)
                    values[j] = new if better else old
                    where[j] = i if better else earlier[j]

    return loop


LOOPS: dict[str, Loop] = {
    "running": Loop("annnai", _running),
}
for _name in ("cumsum", "cumprod"):
    _rows, _pieces, _columns = _scan(_name == "cumprod")
    LOOPS[f"{_name}_rows"] = Loop("ana", _rows)
    LOOPS[f"{_name}_pieces"] = Loop("ana", _pieces)
    LOOPS[f"{_name}_columns"] = Loop("annnna", _columns)
