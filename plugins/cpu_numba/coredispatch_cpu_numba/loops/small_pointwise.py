"""The call of an elementwise operator on few elements, from its arguments to its result.

One function for all operators of one array, one for all of two. They take what most calls are made
of: contiguous arrays of one dtype and shape, or beside one a number, or a row for each of its rows.
What is done with the elements are the tasks of ``elementwise.pointwise``, whose addresses are in an
array of int64:

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
    length,
    made_like,
    missing,
    none,
    number_in,
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
_reserve = stack_words(6)  # of three arguments of a task: an address and a size, or a number


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


FUNCTIONS = ("one", "two")


def compile_function(name: str, cached_only: bool = False) -> Callable[..., Any]:
    """``one(x, out, tasks)`` or ``two(x, y, out, tasks)``; ``out`` may be None.

    Raises :class:`NotReady` where it is ``cached_only`` and the disk does not have it.
    """
    function: Callable[..., Any] = {"one": one, "two": two}[name]
    signature = (OBJECT,) * function.__code__.co_argcount
    return build_function(function, signature, f"small_pointwise.{name}", (), cached_only)
