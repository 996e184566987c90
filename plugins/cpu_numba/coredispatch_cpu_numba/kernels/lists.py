"""Operators over lists of tensors: a training step's updates of all parameters at once.

Small tensors are gone through in one compiled call; larger ones, which threads share, one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from math import isnan, sqrt
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.functions import Functions

__all__ = ["KERNELS", "accepts", "run_each"]

_functions = Functions("lists")
_SPLIT = 32768
#: the elements whose squares are summed in one piece
_BLOCK = 16384

_add = Loop("elementwise.pointwise", "add_inplace", _SPLIT)
_mul = Loop("elementwise.pointwise", "mul_scalar_inplace", _SPLIT)
_sgd = Loop("nn.optim_steps", "sgd", _SPLIT)
#: how many lists and numbers each update takes beside the tensors, and its loop
_UPDATES = {"add": (1, 1, _add), "mul": (0, 1, _mul)} | {
    name: (lists, numbers, Loop("elementwise.parametrized", f"{name}_inplace", _SPLIT))
    for name, lists, numbers in (
        ("addcdiv", 2, 1),
        ("addcmul", 2, 1),
        ("clamp", 0, 2),
        ("lerp", 1, 1),
    )
}
_unscale = Loop("nn.optim_steps", "unscale", _SPLIT)
_squares = Loop("reduction.norms", "squares", _SPLIT)


def _is_floating(arrays: Any) -> bool:
    return bool(arrays) and type(arrays[0]) is np.ndarray and arrays[0].dtype in FLOATS


def accepts(columns: tuple[Any, ...], written: int) -> bool:
    """Whether :func:`run_each` would do it."""
    if not _is_floating(columns[0]):
        return False
    return _functions["each"](columns, written, 1, 0) is not NotImplemented


def run_each(
    loop: Loop, columns: tuple[Any, ...], written: int, unit: int = 1, small: int = _SPLIT
) -> Any:
    """``loop`` over each row of ``columns``, as ``loops.lists`` has them; None when it is done.

    Rows of ``small`` elements or more are left to threads. ``NotImplemented`` where the arrays are
    not alike, or share memory: then nothing was written.
    """
    first = columns[0]
    if not _is_floating(first):
        return NotImplemented
    own = first[0].dtype
    task = loop.compiled[own][1]  # NotReady must come before something is written
    each = _functions["each"]
    if max([x.size for x in first]) < small:
        done = each(columns, written, unit, task)
        return NotImplemented if done is NotImplemented else None
    if each(columns, written, 1, 0) is NotImplemented:
        return NotImplemented
    for large, group in groupby(range(len(first)), lambda row: first[row].size >= small):
        rows = list(group)
        if large:
            for row in rows:
                size = first[row].size
                given = [column[row] if type(column) is list else column for column in columns]
                loop(own, size, -(-size // unit), *given, weight=unit)
        else:
            part = slice(rows[0], rows[-1] + 1)
            some = tuple([c[part] if type(c) is list else c for c in columns])
            each(some, written, unit, task)
    return None


def update_each(tensors: Any, first: Any, second: Any, function: str, numbers: Any) -> Any:
    """An update in place of each tensor."""
    lists, count, loop = _UPDATES.get(function, (0, -1, _add))
    operands = [list(x) for x in (first, second) if len(x) > 0]
    if len(operands) != lists or len(numbers) != count:
        return NotImplemented
    values = [float(x) for x in numbers]
    if function == "add":
        loop, values = (_add, []) if values[0] == 1.0 else (_sgd, [1.0, 0.0, -values[0]])
    elif function == "clamp" and any(isnan(x) for x in values):
        return NotImplemented  # every element becomes NaN
    return run_each(loop, (list(tensors), *operands, *values), 1)


def norm_of_each(tensors: Any, order: float) -> Any:
    """The root of the sum of squares of each tensor, which is carried in float64."""
    if order != 2 or not tensors:
        return NotImplemented
    if any(type(x) is not np.ndarray or x.size > _BLOCK for x in tensors):
        return _norms_of_large(tensors)
    sums = np.zeros(len(tensors))
    if run_each(_squares, (list(tensors), sums), 0, _BLOCK, _BLOCK + 1) is NotImplemented:
        return NotImplemented
    return np.sqrt(sums, sums).astype(tensors[0].dtype)


def _norms_of_large(tensors: Any) -> Any:
    own = tensors[0].dtype
    for x in tensors:
        if type(x) is not np.ndarray or x.dtype != own or not x.flags.c_contiguous:
            return NotImplemented
    if own not in FLOATS:
        return NotImplemented
    found = np.empty(len(tensors), own)
    for i, x in enumerate(tensors):
        blocks = -(-x.size // _BLOCK)
        sums = np.zeros(max(blocks, 1))
        if blocks:
            _squares(own, x.size, blocks, x, sums, weight=_BLOCK)
        found[i] = sqrt(sum(sums.tolist()))
    return found


def clip_each(tensors: Any, norm: Any, max_norm: float) -> Any:
    """Each tensor times the factor that brings their norm down to ``max_norm``."""
    if not tensors or norm.dtype != tensors[0].dtype or norm.dtype not in FLOATS:
        return NotImplemented
    kind = norm.dtype.type
    with np.errstate(all="ignore"):
        factor = kind(max_norm) / (kind(norm) + kind(1e-6))
        if factor > 1:
            factor = kind(1)
    return run_each(_mul, (list(tensors), float(factor)), 1)


def unscale_each(tensors: Any, found_inf: Any, inv_scale: Any) -> Any:
    """Each tensor times a number, and whether all of them were finite before."""
    inverse = inv_scale.item() if isinstance(inv_scale, np.ndarray) else inv_scale
    if isinstance(inverse, complex):
        return NotImplemented
    inverse = float(inverse)
    flags = np.zeros(len(tensors))
    columns = (list(tensors), flags, inverse)
    if not accepts(columns, 1):
        return NotImplemented
    if max([x.size for x in tensors]) < _SPLIT:
        run_each(_unscale, columns, 1)
    else:
        for x in tensors:
            _unscale(x.dtype, x.size, x.size, x, flags, inverse)
    if flags.any():
        found_inf[...] = 1
    return None


KERNELS: dict[str, Callable[..., Any]] = {
    "clip_each": clip_each,
    "norm_of_each": norm_of_each,
    "unscale_each": unscale_each,
    "update_each": update_each,
}
