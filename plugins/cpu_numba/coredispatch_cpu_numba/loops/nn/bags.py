"""Sums, means and maxima of the rows of a table that bags of indices name. Counts bags."""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.spans import copy, fill, item, row_of

__all__ = ["LOOPS"]

SUM, MEAN, MAX, WEIGHTED = range(4)


def _bags(char: str) -> Callable[..., None]:
    """Bags of ``length`` indices, or where that is -1 from each of ``starts`` to the next.

    Indices that equal ``padding`` do not count. What is out of range is not followed: ``bad[0]``
    becomes 1.
    """
    T = elementary[char].T

    def loop(table, index, starts, shares, n, width, length, how, padding, out, bad, lo, hi):
        full_vectors()
        for b in range(lo, hi):
            first, stop = b * length, b * length + length
            if length < 0:
                first = item(starts, b)
                stop = item(starts, b + 1) if b + 1 < starts.size else index.size
            if first < 0 or stop < first or stop > index.size or (b == 0 and first > 0):
                bad[0] = 1
                continue
            result = row_of(out, b, width)
            fill(result, T(0.0))
            count = 0
            r = first
            while r < stop:
                if how != MAX and r + 4 <= stop:  # the sums are stored once for four
                    k, g, p, q = (
                        item(index, r),
                        item(index, r + 1),
                        item(index, r + 2),
                        item(index, r + 3),
                    )
                    signs = k | g | p | q
                    signs |= (n - 1 - k) | (n - 1 - g) | (n - 1 - p) | (n - 1 - q)
                    skips = k == padding or g == padding or p == padding or q == padding
                    if signs >= 0 and not skips:
                        one, two = row_of(table, k, width), row_of(table, g, width)
                        three, four = row_of(table, p, width), row_of(table, q, width)
                        if how == WEIGHTED:
                            s, t = item(shares, r), item(shares, r + 1)
                            u, v = item(shares, r + 2), item(shares, r + 3)
                            for i in range(width):
                                result[i] += (one[i] * s + two[i] * t) + (
                                    three[i] * u + four[i] * v
                                )
                        else:
                            for i in range(width):
                                result[i] += (one[i] + two[i]) + (three[i] + four[i])
                        count += 4
                        r += 4
                        continue
                k = item(index, r)
                if k < 0 or k >= n:
                    bad[0] = 1
                    break
                if k != padding:
                    row = row_of(table, k, width)
                    if how == WEIGHTED:
                        share = item(shares, r)
                        for i in range(width):
                            result[i] += row[i] * share
                    elif how != MAX:
                        for i in range(width):
                            result[i] += row[i]
                    elif count == 0:
                        copy(result, row)
                    else:
                        for i in range(width):
                            old, new = result[i], row[i]
                            result[i] = choose((new > old) | (new != new), new, old)
                    count += 1
                r += 1
            if how == MEAN and count > 0:
                for i in range(width):
                    result[i] /= T(count)

    return loop


LOOPS: dict[str, Loop] = {"bags": Loop("aiiannnnnai", _bags)}
