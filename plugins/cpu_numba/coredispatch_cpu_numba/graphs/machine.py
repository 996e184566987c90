"""Running a whole graph in one call: a program of steps, each a compiled loop and its arguments.

A program is memory: for each step eight words, for each array that comes with a call what it must
look like, and the places where its address belongs.
"""

from __future__ import annotations

from functools import cache as memoized
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .. import threads
from ..atomics import call
from ..building import build
from .access import word

__all__ = ["SLOT", "STEP", "execute"]

#: words of a step: task, arguments, count, grain, work shared (0 or 1), address of its verdict,
#: address of its switch
STEP = 7
#: words of a slot: dimensions, offset of its sizes and strides in ``sizes``
SLOT = 2
# Where CPython keeps the elements of a tuple, and NumPy data, rank, sizes and strides of an array.
_ITEMS = tuple.__basicsize__
_DATA = object.__basicsize__
_RANK, _SIZES, _STRIDES = _DATA + 8, _DATA + 16, _DATA + 24


@intrinsic
def _half(typingctx: Any, address: Any) -> Any:
    """The int32 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(32).as_pointer())
        return builder.sext(builder.load(pointer), ir.IntType(64))

    return types.intp(types.intp), codegen


@intrinsic
def _put(typingctx: Any, address: Any, value: Any) -> Any:
    """Write a word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], ir.IntType(64).as_pointer()))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


def _execute(steps, count, slots, places, moves, arrays, pool):
    """Check and enter the arrays of a call, then run the steps.

    Args:
        steps, count: the address of the steps, how many they are.
        slots: the address of ``SLOT`` words for each array, and their number in front.
        places: the address of the places that depend on a call: ``(where, slot, offset)`` each,
            and their number in front.
        moves: the address of the sizes and strides that the arrays must have.
        arrays: the address of the tuple of arrays.
        pool: of :mod:`..threads`.

    A step whose switch is off is left out.

    Returns 0, or 1 + k where array k is laid out otherwise, or -1 - k where step k refused.
    """
    for k in range(word(slots, 0)):
        array = word(arrays + _ITEMS, k)
        rank = word(slots, 1 + SLOT * k)
        if _half(array + _RANK) != rank:
            return 1 + k
        sizes, strides = word(array + _SIZES, 0), word(array + _STRIDES, 0)
        wanted = moves + 8 * word(slots, 2 + SLOT * k)
        for d in range(rank):
            size = word(wanted, 2 * d)
            if word(sizes, d) != size:
                return 1 + k
            if size != 1 and word(strides, d) != word(wanted, 2 * d + 1):
                return 1 + k
    for k in range(word(places, 0)):
        at = places + 8 + 24 * k
        array = word(arrays + _ITEMS, word(at, 1))
        _put(word(at, 0), word(array + _DATA, 0) + word(at, 2))
    for k in range(count):
        step = steps + 8 * STEP * k
        switch = word(step, 6)
        if switch != 0 and word(switch, 0) == 0:
            continue
        units = word(step, 2)
        if word(step, 4) != 0 and pool != 0:
            threads.run(pool, word(step, 0), word(step, 1), units, word(step, 3))
        else:
            call(word(step, 0), word(step, 1), 0, units)
        verdict = word(step, 5)
        if verdict != 0 and word(verdict, 0) != 0:
            return -1 - k
    return 0


@memoized
def execute() -> Any:
    """:func:`_execute`, compiled."""
    signature = types.intp(*[types.intp] * 7)
    return build(_execute, signature, "graphs.execute", for_python=True).entry_point
