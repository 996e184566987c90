"""A task over each of the tensors of a list: one call for all of them.

What a training step does with many small tensors costs more calls than elements. ``each`` looks at
all rows before it runs the task of the first, so that nothing is written where it rejects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from coredispatch_cpu_numba.atomics import call, stack_words
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.objects import (
    OBJECT,
    READABLE,
    WRITEABLE,
    build_function,
    count,
    data_of,
    doubles_at,
    dtype_number,
    is_array,
    items_in,
    number_in,
    object_at,
    overlap,
    own,
    refused,
    same_shape,
    words_at,
)

__all__ = ["FUNCTIONS", "compile_function"]

_MOST_COLUMNS = 16
_FLOAT64 = np.dtype(np.float64).num
_reserve = stack_words(2 * _MOST_COLUMNS)


@compiled
def _fits(x, like, flags):
    if not is_array(x, flags) or dtype_number(x) != dtype_number(like):
        return False
    return same_shape(x, like)


@compiled
def _is_apart(columns, x, row, others):
    """Whether an array shares no memory with those in its row of the first columns."""
    for column in range(others):
        _, place = items_in(object_at(columns + 8 * column))
        if overlap(x, object_at(place + 8 * row)):
            return False
    return True


@compiled
def _accepts(columns, width, rows, written):
    _, firsts = items_in(object_at(columns))
    number = dtype_number(object_at(firsts))
    for column in range(width):
        whole = object_at(columns + 8 * column)
        many, place = items_in(whole)
        if many < 0:
            if is_array(whole, WRITEABLE):
                if dtype_number(whole) != _FLOAT64 or count(whole) != rows:
                    return False
            else:
                is_number, _ = number_in(whole)
                if not is_number:
                    return False
            continue
        if many != rows:
            return False
        for row in range(rows):
            like, x = object_at(firsts + 8 * row), object_at(place + 8 * row)
            if column == 0 and (not is_array(x, READABLE) or dtype_number(x) != number):
                return False
            if not _fits(x, like, WRITEABLE if column < written else READABLE):
                return False
            if not _is_apart(columns, x, row, min(column, written)):
                return False
    return True


def each(columns, written, unit, task):
    """Run ``task`` for each row of ``columns``; the arguments are what a row has in each of them.

    A column is a list of contiguous arrays, which in a row are of one shape and in all of one
    dtype; a float64 array that gives each row one element; or a number. The first ``written`` ones
    are written to. A task counts ``unit`` elements at a time; without one (0) nothing is run.
    Returns ``columns`` where it does not reject.
    """
    width, place = items_in(columns)
    if not 0 < width <= _MOST_COLUMNS:
        return refused()
    rows, firsts = items_in(object_at(place))
    if rows < 1 or not is_array(object_at(firsts), READABLE):
        return refused()
    if not _accepts(place, width, rows, written):
        return refused()
    if task == 0:
        return own(columns)
    address = _reserve()
    arguments, numbers = words_at(address, 2 * width), doubles_at(address, 2 * width)
    for row in range(rows):
        for column in range(width):
            whole = object_at(place + 8 * column)
            many, items = items_in(whole)
            if many >= 0:
                x = object_at(items + 8 * row)
                arguments[2 * column], arguments[2 * column + 1] = data_of(x), count(x)
            elif is_array(whole, WRITEABLE):
                arguments[2 * column], arguments[2 * column + 1] = data_of(whole) + 8 * row, 1
            else:
                _, numbers[2 * column] = number_in(whole)
        size = count(object_at(firsts + 8 * row))
        call(task, address, 0, (size + unit - 1) // unit)
    return own(columns)


FUNCTIONS = ("each",)


def compile_function(name: str, cached_only: bool = False) -> Callable[..., Any]:
    """``each(columns, written, unit, task)``.

    Raises :class:`NotReady` where it is ``cached_only`` and the disk does not have it.
    """
    signature = (OBJECT, types.intp, types.intp, types.intp)
    return build_function({"each": each}[name], signature, f"lists.{name}", (), cached_only)
