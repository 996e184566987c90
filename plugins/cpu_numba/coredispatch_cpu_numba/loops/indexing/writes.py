"""Elements and rows written, added or reduced by index, of arrays seen as ``(outer, n, inner)``.

What is done where several go to one place is a number, ``SET`` and so on. It is done in the order
of the index, whatever the number of threads: threads share matrices or columns, never the elements
of one place. An index out of range is not followed: ``bad[0]`` becomes 1.
"""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.loops.indexing.gather_scatter import CHECKED, within
from coredispatch_cpu_numba.spans import item, part, put

__all__ = ["LOOPS"]

SET, ADD, MULTIPLY, LARGEST, SMALLEST = range(5)


@inlined
def _joined(how, old, new):
    """NaN is larger and smaller than every number."""
    if how == SET:
        return new
    if how == ADD:
        return old + new
    if how == MULTIPLY:
        return old * new
    if how == LARGEST:
        return choose((new > old) | (new != new), new, old)
    return choose((new < old) | (new != new), new, old)


def _elements(char: str) -> Callable[..., None]:
    """Counts tiles of ``tile`` columns, ``tiles`` of them in each of the ``outer`` matrices.

    Tiles that lie side by side are worked on together. With a ``step`` of 0 the source is one
    element. ``whole`` is 1 where all of the index is to be looked at before anything is written.
    """

    @inlined
    def column(how, out, n, m, index, source, step, start, stop):
        for o in range(start, stop):
            for j in range(m):
                at = o * n + item(index, o * m + j)
                put(out, at, _joined(how, item(out, at), item(source, (o * m + j) * step)))

    @inlined
    def row(how, out, base, inner, numbers, source, place, step):
        for i in range(numbers.size):
            at = base + item(numbers, i) * inner + i
            put(out, at, _joined(how, item(out, at), item(source, (place + i) * step)))

    def loop(out, index, source, step, n, m, inner, tile, tiles, how, whole, bad, lo, hi):
        if whole == 1 and not within(index, n):
            bad[0] = 1
            return
        if inner == 1:
            group = max(1, CHECKED // m)
            for start in range(lo, hi, group):
                stop = min(hi, start + group)
                if not within(part(index, start * m, stop * m), n):
                    bad[0] = 1
                elif how == SET:
                    column(SET, out, n, m, index, source, step, start, stop)
                elif how == ADD:
                    column(ADD, out, n, m, index, source, step, start, stop)
                else:
                    column(how, out, n, m, index, source, step, start, stop)
            return
        unit = lo
        while unit < hi:
            o, first = unit // tiles, unit % tiles
            count = min(hi - unit, tiles - first)
            unit += count
            left, right = first * tile, min(inner, (first + count) * tile)
            base, place = o * n * inner + left, o * m * inner + left
            for _ in range(m):
                numbers = part(index, place, place + right - left)
                if not within(numbers, n):
                    bad[0] = 1
                elif how == SET:
                    row(SET, out, base, inner, numbers, source, place, step)
                elif how == ADD:
                    row(ADD, out, base, inner, numbers, source, place, step)
                else:
                    row(how, out, base, inner, numbers, source, place, step)
                place += inner

    return loop


def _rows(char: str) -> Callable[..., None]:
    """Counts tiles of ``tile`` columns, ``tiles`` of them in each of the ``outer`` matrices.

    ``own`` is 1 where each matrix has an index of its own, else 0. With a ``step`` of 0 the source
    is one row. Rows whose index is ``skipped`` are left out. Nothing is written where an index
    that is one for all matrices is out of range.
    """

    @inlined
    def joined(how, target, given):
        for i in range(target.size):
            target[i] = _joined(how, target[i], given[i])

    def loop(out, index, own, source, step, n, m, width, tile, tiles, how, skipped, bad, lo, hi):
        full_vectors()
        unit = lo
        if own == 0 and not within(index, n):
            bad[0] = 1
            return
        while unit < hi:
            o, first = unit // tiles, unit % tiles
            count = min(hi - unit, tiles - first)
            unit += count
            left, right = first * tile, min(width, (first + count) * tile)
            numbers = part(index, o * m * own, o * m * own + m)
            base, place = o * n * width, o * m * width * step
            if own == 1 and not within(numbers, n):
                bad[0] = 1
                continue
            for j in range(m):
                k = item(numbers, j)
                if k == skipped:
                    continue
                at, given = base + k * width, place + j * width * step
                if width == 1:
                    put(out, at, _joined(how, item(out, at), item(source, given)))
                    continue
                target = part(out, at + left, at + right)
                row = part(source, given + left, given + right)
                if how == SET:
                    joined(SET, target, row)
                elif how == ADD:
                    joined(ADD, target, row)
                elif how == MULTIPLY:
                    joined(MULTIPLY, target, row)
                elif how == LARGEST:
                    joined(LARGEST, target, row)
                else:
                    joined(SMALLEST, target, row)

    return loop


LOOPS: dict[str, Loop] = {
    "elements": Loop("aiannnnnnnni", _elements),
    "rows": Loop("ainannnnnnnni", _rows),
}
