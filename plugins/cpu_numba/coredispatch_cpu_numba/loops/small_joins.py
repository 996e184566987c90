"""Joining few elements: lists of contiguous arrays of one dtype in, one array out.

``NotImplemented`` is the answer to everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from coredispatch_cpu_numba.atomics import stack_words
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.objects import (
    OBJECT,
    READABLE,
    build_function,
    copy_bytes,
    count,
    data_of,
    dimensions,
    dtype_number,
    is_array,
    items_in,
    itemsize,
    length,
    made_at,
    missing,
    object_at,
    refused,
    words_at,
)

__all__ = ["FUNCTIONS", "compile_function"]

_MOST = 4096
_MOST_DIMENSIONS = 8
_reserve = stack_words(_MOST_DIMENSIONS)


@compiled
def _is_like(x, first, dim):
    """Whether an array may stand beside another along ``dim``; -1: they are alike in all."""
    if not is_array(x, READABLE) or dtype_number(x) != dtype_number(first):
        return False
    if dimensions(x) != dimensions(first):
        return False
    for d in range(dimensions(first)):
        if d != dim and length(x, d) != length(first, d):
            return False
    return True


@compiled
def _joined(many, place, dim, lengths, ndim):
    """The arrays beside each other in a result of these lengths, row by row along ``dim``."""
    first = object_at(place)
    made = made_at(dtype_number(first), ndim, lengths)
    if not missing(made):
        rows = 1
        for d in range(dim):
            rows *= words_at(lengths, ndim)[d]
        target = data_of(made)
        for row in range(rows):
            for i in range(many):
                x = object_at(place + 8 * i)
                size = count(x) * itemsize(x) // max(rows, 1)
                copy_bytes(target, data_of(x) + row * size, size)
                target += size
    return made


@compiled
def _first_of(many, place):
    """Whether there are arrays to be joined."""
    if many < 1:
        return False
    first = object_at(place)
    return is_array(first, READABLE) and itemsize(first) > 0


def cat(items, dim):
    """One after the other along ``dim``."""
    many, place = items_in(items)
    if not _first_of(many, place):
        return refused()
    first = object_at(place)
    ndim = dimensions(first)
    if dim < 0:
        dim += ndim
    if not 0 <= dim < ndim <= _MOST_DIMENSIONS:
        return refused()
    total = size = 0
    for i in range(many):
        x = object_at(place + 8 * i)
        if not _is_like(x, first, dim):
            return refused()
        total += length(x, dim)
        size += count(x)
    if size > _MOST:
        return refused()
    lengths = _reserve()
    for d in range(ndim):
        words_at(lengths, ndim)[d] = total if d == dim else length(first, d)
    return _joined(many, place, dim, lengths, ndim)


def stack(items, dim):
    """Side by side along a new dimension."""
    many, place = items_in(items)
    if not _first_of(many, place):
        return refused()
    first = object_at(place)
    ndim = dimensions(first) + 1
    if dim < 0:
        dim += ndim
    if not 0 <= dim < ndim <= _MOST_DIMENSIONS or many * count(first) > _MOST:
        return refused()
    for i in range(many):
        if not _is_like(object_at(place + 8 * i), first, -1):
            return refused()
    lengths = _reserve()
    shape = words_at(lengths, ndim)
    for d in range(ndim):
        shape[d] = many if d == dim else length(first, d if d < dim else d - 1)
    return _joined(many, place, dim, lengths, ndim)


FUNCTIONS = ("cat", "stack")


def compile_function(name: str, cached_only: bool = False) -> Callable[..., Any]:
    """The C function ``cat`` or ``stack``, of a list or tuple of arrays and a dimension.

    Raises :class:`NotReady` where it is ``cached_only`` and the disk does not have it.
    """
    function: Callable[..., Any] = {"cat": cat, "stack": stack}[name]
    signature = (OBJECT, types.intp)
    return build_function(function, signature, f"small_joins.{name}", (), cached_only)
