"""Elementwise loops over arrays that do not lie in a row: slices, permuted and expanded arrays.

A block of each operand that is not contiguous is brought into order in a buffer that stays in the
first cache; the loop of the function, compiled for contiguous arrays, then runs over the block. So
one loop here serves all functions. Where rows are long and their elements lie side by side, blocks
are pieces of rows, and nothing is moved.
"""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.atomics import address_of, array_at, call, stack_words
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.objects import copy_bytes, doubles_at, words_at

__all__ = ["BUFFER", "LOOPS"]

#: the bytes of a buffer: four of them leave room in the first cache
BUFFER = 4096
_MOST_DIMENSIONS = 8
_MOST_ARGUMENTS = 8
# As ``kernels.elementwise.strided`` writes the plan: these words, then the lengths of the
# dimensions, and for each array how far apart the elements along each dimension are.
_SIZE, _NDIM, _ARRAYS, _NUMBERS, _WIDTH, _WHOLE, _ROW, _INPLACE, _LENGTHS = range(9)
_buffers = stack_words(4 * BUFFER // 8)
_reserve = stack_words(2 * _MOST_ARGUMENTS)
_counters = stack_words(_MOST_DIMENSIONS)
_bases = stack_words(4)


def _build(char: str) -> Callable[..., None]:
    size = 8 if char == "d" else 4
    block = BUFFER // size

    @compiled
    def offset(plan, steps, start):
        """Where element ``start`` is."""
        found = 0
        for d in range(plan[_NDIM] - 1, -1, -1):
            length = plan[_LENGTHS + d]
            found += start % length * plan[steps + d]
            start //= length
        return found

    @compiled
    def moved(like, base, plan, steps, start, count, room, out):
        """Elements from ``start`` on, brought to ``room``; with ``out`` from there."""
        ndim = plan[_NDIM]
        inner = plan[_LENGTHS + ndim - 1]
        step = plan[steps + ndim - 1]
        at = words_at(_counters(), _MOST_DIMENSIONS)
        rest = start
        offset = 0
        for d in range(ndim - 1, -1, -1):
            length = plan[_LENGTHS + d]
            at[d] = rest % length
            rest //= length
            offset += at[d] * plan[steps + d]
        done = 0
        while done < count:
            many = min(inner - at[ndim - 1], count - done)
            place = base + offset * size
            if step == 1:
                if out:
                    copy_bytes(place, room + done * size, many * size)
                else:
                    copy_bytes(room + done * size, place, many * size)
            else:
                source = array_at(place, (many - 1) * step + 1, like)
                target = array_at(room + done * size, many, like)
                if out:
                    for i in range(many):
                        source[i * step] = target[i]
                elif step == 0:
                    value = source[0]
                    for i in range(many):
                        target[i] = value
                else:
                    for i in range(many):
                        target[i] = source[i * step]
            done += many
            offset += (inner - at[ndim - 1]) * step
            at[ndim - 1] = 0
            offset -= inner * step
            for d in range(ndim - 2, -1, -1):
                at[d] += 1
                offset += plan[steps + d]
                if at[d] < plan[_LENGTHS + d]:
                    break
                offset -= at[d] * plan[steps + d]
                at[d] = 0

    def loop(a, b, c, out, plan, numbers, task, with_number, lo, hi):
        full_vectors()
        arrays, many, ndim = plan[_ARRAYS], plan[_NUMBERS], plan[_NDIM]
        whole, width, row = plan[_WHOLE], plan[_WIDTH], plan[_ROW]
        address, room = _reserve(), _buffers()
        words = words_at(address, 2 * _MOST_ARGUMENTS)
        doubles = doubles_at(address, 2 * _MOST_ARGUMENTS)
        bases = words_at(_bases(), 4)
        bases[0], bases[1], bases[2] = address_of(a), address_of(b), address_of(c)
        bases[3] = address_of(out)
        for k in range(many):
            doubles[2 * (arrays + k)] = numbers[k]
        last = arrays + many
        pieces = (row + block - 1) // block
        for index in range(lo, hi):
            if row:
                start = index // pieces * row + index % pieces * block
                count = min(block, row - index % pieces * block)
            else:
                start = index * block
                count = min(block, plan[_SIZE] - start)
            chosen = task
            for k in range(arrays):
                steps = _LENGTHS + (k + 1) * ndim
                step = plan[steps + ndim - 1]
                words[2 * k + 1] = count
                if whole >> k & 1:
                    words[2 * k] = bases[k] + start * size
                elif row and step == 1:
                    words[2 * k] = bases[k] + offset(plan, steps, start) * size
                elif row and k == 1 and with_number:
                    place = bases[k] + offset(plan, steps, start) * size
                    doubles[2] = array_at(place, 1, a)[0]
                    chosen = with_number
                else:
                    words[2 * k] = room + k * BUFFER
                    moved(a, bases[k], plan, steps, start, count, words[2 * k], False)
            if plan[_INPLACE]:
                call(chosen, address, 0, count)
                if words[0] == room:
                    moved(a, bases[0], plan, _LENGTHS + ndim, start, count, room, True)
                continue
            steps = _LENGTHS + (arrays + 1) * ndim
            place = room + 3 * BUFFER
            if whole >> 3 & 1:
                place = bases[3] + start * width
            elif row:
                place = bases[3] + offset(plan, steps, start) * size
            words[2 * last], words[2 * last + 1] = place, count
            call(chosen, address, 0, count)
            if place == room + 3 * BUFFER:
                moved(a, bases[3], plan, steps, start, count, place, True)

    return loop


#: the arrays, of which as many count as the plan says, the result, the plan, the numbers, the task,
#: and (or 0) the one for a second operand that is a number
LOOPS: dict[str, Loop] = {"blocks": Loop("aaaaidnn", _build)}
