"""Places in sorted sequences, and counts of cells of equal width."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.graphs.access import accessors
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.spans import part

__all__ = ["LOOPS"]

#: values that take the steps of a search together: their places stay in the first cache
_TOGETHER = 256


def _places(char: str) -> Callable[..., None]:
    """How many of ``n`` sorted numbers a value passes, with ``right`` those equal to it as well.

    The steps of a binary search are the same for all values, so vectors of them take each together;
    LLVM has to be told that the sequence, read at places that it does not know, is not written to.
    NaN stands last: it passes every number, and with ``right`` NaN, too.
    """
    pivot_at, _ = accessors(char, 0, 3)
    value_at, _ = accessors(char, 1, 3)
    place_at, put_place = accessors("i", 2, 3)
    is_nan = inlined(lambda x: x != x)

    def loop(sequences, n, values, per_row, right, out, lo, hi):
        full_vectors()
        start = lo
        while start < hi:
            row = start // per_row
            stop = min(hi, row * per_row + per_row, start + _TOGETHER)
            sequence = address_of(part(sequences, row * n, row * n + n))
            some, place = address_of(part(values, start, stop)), address_of(part(out, start, stop))
            for i in range(stop - start):
                put_place(place, i, 0)
            numbers = n
            while numbers > 0 and is_nan(pivot_at(sequence, numbers - 1)):
                numbers -= 1
            length = numbers
            while length > 0:
                half = (length + 1) >> 1
                if right:
                    for i in range(stop - start):
                        at, value = place_at(place, i), value_at(some, i)
                        stays = value < pivot_at(sequence, at + half - 1)
                        put_place(place, i, choose(stays, at, at + half))
                else:
                    for i in range(stop - start):
                        at, value = place_at(place, i), value_at(some, i)
                        stays = value <= pivot_at(sequence, at + half - 1)
                        put_place(place, i, choose(stays, at, at + half))
                length -= half
            if right and numbers < n:
                for i in range(stop - start):
                    if is_nan(value_at(some, i)):
                        put_place(place, i, n)
            start = stop

    return loop


def _cells(char: str) -> Callable[..., None]:
    """How many of ``x`` lie in each cell between ``low`` and ``high``, both of which count."""
    block = 128

    def loop(x, low, high, bins, cells, counts, lo, hi):
        full_vectors()
        width = high - low
        for start in range(0, x.size, block):
            some = part(x, start, min(x.size, start + block))
            for i in range(some.size):
                value = np.float64(some[i])
                inside = (value >= low) & (value <= high)
                place = np.int64(choose(inside, (value - low) / width * bins, 0.0))
                cells[i] = choose(inside, min(place, bins - 1), bins)
            for i in range(some.size):
                counts[cells[i]] += 1

    return loop


LOOPS: dict[str, Loop] = {
    "places": Loop("ananni", _places),
    "whole_places": Loop("ininni", lambda char: _places("i"), dtypes="f"),
    "cells": Loop("aeenii", _cells),
}
