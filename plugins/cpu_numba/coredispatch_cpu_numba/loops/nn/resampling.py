"""Planes whose rows and columns are weighted sums of others. Counts planes.

``numbers``: height and width of a plane, and of what it becomes; taps of a row, and of an element
within a row; how many rows lie between the taps of a row, at most; whether rows are brought
together before they are resampled, or after. ``rows`` and ``columns`` are places of taps, tap by
tap, -1 where there is none; after the ``columns`` follow, for each tap, the first element that has
it and the one after the last, and whether ``every`` serves. No taps within a row: rows stay as they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.spans import fill, item, part, put, row_of

__all__ = ["LOOPS"]

_compiled = compiled(fastmath={"contract"})


def _within_of(char: str) -> Any:
    """A compiled ``within(row, places, shares, ranges, taps, neutral, out)``: one row resampled."""
    zero = elementary[char].T(0.0)

    @_compiled
    def every(row, places, shares, taps, neutral, out):
        """All elements have one, two or four taps: they are added up without a pass for each."""
        full_vectors()
        n = out.size
        if taps == 1:
            for j in range(n):
                value = item(row, np.intp(item(places, j)))
                put(out, j, neutral + value * item(shares, j))
        elif taps == 2:
            for j in range(n):
                left = item(row, np.intp(item(places, j))) * item(shares, j)
                right = item(row, np.intp(item(places, n + j))) * item(shares, n + j)
                put(out, j, left + right)
        else:
            for j in range(n):
                a = item(row, np.intp(item(places, j))) * item(shares, j)
                b = item(row, np.intp(item(places, n + j))) * item(shares, n + j)
                c = item(row, np.intp(item(places, 2 * n + j))) * item(shares, 2 * n + j)
                d = item(row, np.intp(item(places, 3 * n + j))) * item(shares, 3 * n + j)
                put(out, j, (a + b) + (c + d))

    @_compiled
    def within(row, places, shares, ranges, taps, neutral, out):
        full_vectors()
        n = out.size
        if ranges[2 * taps] == 1:
            every(row, places, shares, taps, neutral, out)
            return
        fill(out, neutral)
        for t in range(taps):
            first, stop = ranges[t], ranges[taps + t]
            here, share = part(places, t * n, t * n + n), part(shares, t * n, t * n + n)
            for j in range(first, stop):
                at = item(here, j)
                value = item(row, np.intp(choose(at >= 0, at, np.int32(0))))
                put(out, j, item(out, j) + choose(at >= 0, value, zero) * item(share, j))

    return within


def _together_of(char: str) -> Any:
    """A compiled ``together(source, span, j, height, rows, shares, taps, neutral, out)``.

    Row ``j`` of the result out of rows of the source, of which the last ``span`` are kept.
    """
    T = elementary[char].T

    @_compiled
    def together(source, span, j, height, rows, shares, taps, neutral, out):
        full_vectors()
        n = out.size
        begun = False
        t = 0
        while t < taps:
            at, share = rows[t * height + j], shares[t * height + j]
            t += 1
            if at < 0:
                continue
            first = row_of(source, at % span, n)
            if t < taps and rows[t * height + j] >= 0:
                second = row_of(source, rows[t * height + j] % span, n)
                other = shares[t * height + j]
                t += 1
                if begun:
                    for z in range(n):
                        both = item(first, z) * share + item(second, z) * other
                        put(out, z, item(out, z) + both)
                else:
                    for z in range(n):
                        both = item(first, z) * share + item(second, z) * other
                        put(out, z, neutral + both)
            elif begun:
                for z in range(n):
                    put(out, z, item(out, z) + item(first, z) * share)
            else:
                for z in range(n):
                    put(out, z, neutral + item(first, z) * share)
            begun = True
        if not begun:
            fill(out, T(0.0))

    return together


def _resampled(char: str) -> Callable[..., None]:
    within, together = _within_of(char), _together_of(char)

    def loop(x, out, numbers, rows, row_shares, columns, column_shares, neutral, lo, hi):
        full_vectors()
        h, w, oh, ow = numbers[0], numbers[1], numbers[2], numbers[3]
        down, across, span, rows_first = numbers[4], numbers[5], numbers[6], numbers[7]
        places = np.empty(across * ow, np.int32)
        for j in range(places.size):
            places[j] = np.int32(columns[j])
        ranges = part(columns, places.size, columns.size)
        if rows_first:
            room = np.empty(w, x.dtype)
        else:
            room = np.empty(span * ow, x.dtype)
        for plane in range(lo, hi):
            source = part(x, plane * h * w, (plane + 1) * h * w)
            done = 0
            for j in range(oh):
                result = row_of(out, plane * oh + j, ow)
                if across == 0:
                    together(source, h, j, oh, rows, row_shares, down, neutral, result)
                elif rows_first:
                    together(source, h, j, oh, rows, row_shares, down, neutral, room)
                    within(room, places, column_shares, ranges, across, neutral, result)
                else:
                    # The rows that are needed here and were not before.
                    first, last = h, -1
                    for t in range(down):
                        at = rows[t * oh + j]
                        if at >= 0:
                            first, last = min(first, at), max(last, at)
                    done = max(done, first) if last >= 0 else done
                    while done <= last:
                        row, made = row_of(source, done, w), row_of(room, done % span, ow)
                        within(row, places, column_shares, ranges, across, neutral, made)
                        done += 1
                    together(room, span, j, oh, rows, row_shares, down, neutral, result)

    return loop


LOOPS: dict[str, Loop] = {"resampled": Loop("aaiiaias", _resampled)}
