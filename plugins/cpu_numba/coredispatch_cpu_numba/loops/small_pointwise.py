"""The call of an elementwise operator on few elements, from its arguments to its result.

One function for all operators of one array, one for all of two, one for those of several arrays and
numbers. They take what most calls are made of: contiguous arrays of one dtype and shape, or beside
one a number, or a row for each of its rows. What is done with the elements are tasks of
``elementwise.pointwise`` and ``parametrized``, whose addresses are in an array of int64:

* the number of the result's dtype, or -1 where it is that of the operands;
* the most elements that are few;
* which task was missing, where the result is ``None``;
* for float32 and then for float64 a task for each of ``VARIANTS``, 0 while it is not
  compiled, -1 where there is none.

The result is ``NotImplemented`` for arguments of any other kind.
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
    dimensions,
    doubles_at,
    dtype_number,
    is_array,
    is_none,
    items_in,
    length,
    made_like,
    missing,
    none,
    number_in,
    object_at,
    overlap,
    own,
    refused,
    same_shape,
    words_at,
    words_in,
)

__all__ = ["FUNCTIONS", "compile_function"]

_RESULT, _MOST, _MISSING, _TASKS = range(4)
#: what the names of the tasks end in
VARIANTS = ("", "_inplace", "_scalar", "_scalar_inplace", "_row")
_MANY = len(VARIANTS)
_FRESH, _INPLACE, _NUMBER, _NUMBER_INPLACE, _ROW = range(_MANY)
_FLOAT32, _FLOAT64 = np.dtype(np.float32).num, np.dtype(np.float64).num
_MOST_ARGUMENTS = 8
#: of the arguments of a task: an address and a size, or a number
_reserve, _reserve_many = stack_words(6), stack_words(2 * _MOST_ARGUMENTS)


@compiled
def _place(dtype, variant):
    return _TASKS + (_MANY if dtype == _FLOAT64 else 0) + variant


@compiled
def _is_floating(x):
    return is_array(x, READABLE) and (dtype_number(x) == _FLOAT32 or dtype_number(x) == _FLOAT64)


@compiled
def _same(a, b):
    return data_of(a) == data_of(b)


@compiled
def _variant(x, out, fresh, inplace):
    """Which task writes into ``out``: one that reads ``x`` there, or another; -1: none may."""
    if is_none(out):
        return fresh
    if not is_array(out, WRITEABLE) or dtype_number(out) != dtype_number(x):
        return -1
    if not same_shape(x, out):
        return -1
    if _same(x, out):
        return inplace
    return -1 if overlap(x, out) else fresh


@compiled
def _result(x, out, words):
    if not is_none(out):
        return own(out)
    return made_like(x, dtype_number(x) if words[_RESULT] < 0 else words[_RESULT])


def one(x, out, tasks):
    """An operator of one array."""
    words = words_in(tasks)
    if not _is_floating(x) or count(x) > words[_MOST]:
        return refused()
    variant = _variant(x, out, _FRESH, _INPLACE)
    if variant < 0:
        return refused()
    place = _place(dtype_number(x), variant)
    if words[place] < 0:
        return refused()
    if words[place] == 0:
        words[_MISSING] = place
        return none()
    made = _result(x, out, words)
    if not missing(made):
        address = _reserve()
        arguments = words_at(address, 4)
        arguments[0], arguments[1] = data_of(x), count(x)
        arguments[2], arguments[3] = data_of(made), count(x)
        call(words[place], address, 0, count(x))
    return made


def two(x, y, out, tasks):
    """An operator of an array and another, a row of it, or a number."""
    words = words_in(tasks)
    if not _is_floating(x) or count(x) > words[_MOST]:
        return refused()
    size = count(x)
    parts = size
    address = _reserve()
    arguments, numbers = words_at(address, 6), doubles_at(address, 6)
    arguments[0], arguments[1] = data_of(x), size
    if is_array(y, READABLE):
        if dtype_number(y) != dtype_number(x):
            return refused()
        arguments[2], arguments[3] = data_of(y), count(y)
        if same_shape(x, y):
            variant = _variant(x, out, _FRESH, _INPLACE)
            if variant >= 0 and not is_none(out) and not _same(y, out) and overlap(y, out):
                return refused()
        else:
            last = dimensions(x) - 1
            if last < 1 or dimensions(y) != 1 or not 0 < length(y, 0) == length(x, last):
                return refused()
            variant = _ROW if is_none(out) else -1
            parts = size // count(y)
    else:
        is_number, number = number_in(y)
        if not is_number:
            return refused()
        numbers[2] = number
        variant = _variant(x, out, _NUMBER, _NUMBER_INPLACE)
    if variant < 0:
        return refused()
    place = _place(dtype_number(x), variant)
    if words[place] < 0:
        return refused()
    if words[place] == 0:
        words[_MISSING] = place
        return none()
    made = _result(x, out, words)
    if not missing(made):
        arguments[4], arguments[5] = data_of(made), size  # in place it is not looked at
        call(words[place], address, 0, parts)
    return made


def several(given, arrays, out, tasks):
    """An operator of so many arrays, and of numbers; NaN is none."""
    words = words_in(tasks)
    total, place = items_in(given)
    if not 0 < arrays <= total < _MOST_ARGUMENTS:
        return refused()
    x = object_at(place)
    if not _is_floating(x) or count(x) > words[_MOST]:
        return refused()
    variant = _variant(x, out, _FRESH, _INPLACE)
    if variant < 0:
        return refused()
    size, address = count(x), _reserve_many()
    arguments = words_at(address, 2 * _MOST_ARGUMENTS)
    numbers = doubles_at(address, 2 * _MOST_ARGUMENTS)
    for k in range(total):
        item = object_at(place + 8 * k)
        if k >= arrays:
            is_number, number = number_in(item)
            if not is_number or number != number:
                return refused()
            numbers[2 * k] = number
            continue
        if k > 0:
            if not is_array(item, READABLE) or dtype_number(item) != dtype_number(x):
                return refused()
            if not same_shape(x, item) or (not is_none(out) and overlap(item, out)):
                return refused()
        arguments[2 * k], arguments[2 * k + 1] = data_of(item), size
    task = _place(dtype_number(x), variant)
    if words[task] < 0:
        return refused()
    if words[task] == 0:
        words[_MISSING] = task
        return none()
    made = _result(x, out, words)
    if not missing(made):
        arguments[2 * total], arguments[2 * total + 1] = data_of(made), size
        call(words[task], address, 0, size)
    return made


FUNCTIONS = ("one", "two", "several")


def compile_function(name: str, cached_only: bool = False) -> Callable[..., Any]:
    """``one(x, out, tasks)``, ``two(x, y, out, tasks)`` or ``several(given, arrays, out, tasks)``.

    ``out`` may be None.

    Raises :class:`NotReady` where it is ``cached_only`` and the disk does not have it.
    """
    if name == "several":
        return build_function(
            several,
            (OBJECT, types.intp, OBJECT, OBJECT),
            "small_pointwise.several",
            (),
            cached_only,
        )
    function: Callable[..., Any] = {"one": one, "two": two}[name]
    signature = (OBJECT,) * function.__code__.co_argcount
    return build_function(function, tuple(signature), f"small_pointwise.{name}", (), cached_only)
