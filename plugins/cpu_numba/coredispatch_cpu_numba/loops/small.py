"""Whole operators on small matrices, each one call of a Numba dispatcher.

Below some thousand elements the price of an operator is the calls it is made of. These functions
take C-contiguous float32 or float64 arrays and compute their result in one go, into an array the
caller made (handing one over takes Numba 0.3 us, making one takes NumPy 0.15); sums are carried in
float64. What is called are the C functions behind Numba's dispatchers, which trust their
arguments: the callers have checked dtype, dimensions and contiguity.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from coredispatch_cpu_numba.atomics import address_of, array_at
from coredispatch_cpu_numba.building import build, compiled
from coredispatch_cpu_numba.compilation import REDUCTION
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.layout import COLUMNS
from coredispatch_cpu_numba.loops.activation.softmax import columns_of, rows_of, sum_exp_of
from coredispatch_cpu_numba.spans import row_of
from coredispatch_cpu_numba.tails import fold_of

__all__ = ["FUNCTIONS", "compile_function"]

_OWN = (types.float32, types.float64)
_sources: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
_kept: list[Any] = []
_lock = threading.Lock()

#: a matrix of any strides, read only: a gradient that was expanded from a number
_STRIDED = "strided matrix"


def _array(own: Any, shape: Any) -> Any:
    if shape == _STRIDED:
        return types.Array(own, 2, "A", readonly=True)
    return types.Array(own, shape, "C") if type(shape) is int else shape


def _compiled(*shapes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """To be compiled for ``shapes``: a number is an array of that many dimensions."""

    def remember(function: Callable[..., Any]) -> Callable[..., Any]:
        _sources[function.__name__] = function, shapes
        return function

    return remember


def compile_function(name: str, number: int, cached_only: bool = False) -> Callable[..., Any]:
    """The C function of ``name`` for float32 (``number`` 0) or float64 (1).

    Raises :class:`NotReady` where it is ``cached_only`` and the disk does not have it.
    """
    function, shapes = _sources[name]
    signature = tuple(_array(_OWN[number], s) for s in shapes)
    with _lock:
        result = build(
            function,
            signature,
            name,
            for_python=True,
            fastmath=REDUCTION,
            cached_only=cached_only,
        )
        _kept.append(result)  # its code must not go away
        entry: Callable[..., Any] = result.entry_point
    return entry


_LABELS = types.Array(types.int64, 1, "C")


def _exp(x):
    """The pack's own exponential, which vectorizes; ``math.exp`` would be a call per element."""
    return math.exp(x)


@overload(_exp, inline="always")
def _exp_of(x):
    exp = elementary["f" if x == types.float32 else "d"].exp
    return lambda x: exp(x)


@_compiled(2, 0)
def sum_2(x, out):
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += x[i, j]
    out[()] = total


@_compiled(1, 0)
def sum_1(x, out):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    out[()] = total


@_compiled(2, 0)
def mean_2(x, out):
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += x[i, j]
    out[()] = total / x.size


@_compiled(1, 0)
def mean_1(x, out):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    out[()] = total / x.size


@_compiled(2, 1)
def sum_columns(x, out):
    for j in range(x.shape[1]):
        total = 0.0
        for i in range(x.shape[0]):
            total += x[i, j]
        out[j] = total


@_compiled(2, 1)
def sum_rows(x, out):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total


@_compiled(2, 1)
def mean_columns(x, out):
    for j in range(x.shape[1]):
        total = 0.0
        for i in range(x.shape[0]):
            total += x[i, j]
        out[j] = total / x.shape[0]


@_compiled(2, 1)
def mean_rows(x, out):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total / x.shape[1]


def _char(x):
    return "f" if x.dtype == types.float32 else "d"


def _flat(x):
    """The elements of a contiguous array in a row."""


@overload(_flat, inline="always")
def _flat_of(x):
    return lambda x: array_at(address_of(x), x.size, x)


def _rows_by(build):
    """A function of two matrices, by the loop over rows that ``build`` makes for a dtype."""

    def run(x, out):
        """Run it."""

    @overload(run, inline="always")
    def run_of(x, out):
        loop = compiled(fastmath={"contract"})(build(_char(x)))
        return lambda x, out: loop(_flat(x), x.shape[1], _flat(out), 0, x.shape[0])

    return run


def _columns_by(build):
    """As ``_rows_by``, by a loop over tiles of columns."""

    def run(x, out):
        """Run it."""

    @overload(run, inline="always")
    def run_of(x, out):
        loop = compiled(fastmath={"contract"})(build(_char(x)))

        def run_loop(x, out):
            tiles = (x.shape[1] + COLUMNS - 1) // COLUMNS
            loop(_flat(x), x.shape[0], x.shape[1], tiles, _flat(out), 0, tiles)

        return run_loop

    return run


_softmax_rows, _softmax_columns = _rows_by(rows_of(False)), _columns_by(columns_of(False))
_log_softmax_rows, _log_softmax_columns = _rows_by(rows_of(True)), _columns_by(columns_of(True))


@_compiled(2, 2)
def softmax_long(x, out):
    _softmax_rows(x, out)


@_compiled(2, 2)
def softmax_columns(x, out):
    _softmax_columns(x, out)


@_compiled(2, 2)
def softmax_short(x, out):
    if x.shape[1] == 0:
        return
    for i in range(x.shape[0]):
        top = x[i, 0]
        for j in range(1, x.shape[1]):
            if x[i, j] > top or x[i, j] != x[i, j]:
                top = x[i, j]
        total = 0.0
        for j in range(x.shape[1]):
            e = _exp(x[i, j] - top)
            out[i, j] = e
            total += e
        scale = 1.0 / total
        for j in range(x.shape[1]):
            out[i, j] = out[i, j] * scale


@_compiled(2, 2)
def log_softmax_long(x, out):
    _log_softmax_rows(x, out)


@_compiled(2, 2)
def log_softmax_columns(x, out):
    _log_softmax_columns(x, out)


@_compiled(2, 2)
def log_softmax_short(x, out):
    if x.shape[1] == 0:
        return
    for i in range(x.shape[0]):
        top = x[i, 0]
        for j in range(1, x.shape[1]):
            if x[i, j] > top or x[i, j] != x[i, j]:
                top = x[i, j]
        total = 0.0
        for j in range(x.shape[1]):
            total += _exp(x[i, j] - top)
        shift = math.log(total)
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - top) - shift


@_compiled(2, 2, 2)
def softmax_backward(grad, output, out):
    for i in range(output.shape[0]):
        inner = 0.0
        for j in range(output.shape[1]):
            inner += grad[i, j] * output[i, j]
        for j in range(output.shape[1]):
            out[i, j] = output[i, j] * (grad[i, j] - inner)


@_compiled(2, 2, 2)
def log_softmax_backward(grad, output, out):
    for i in range(output.shape[0]):
        total = 0.0
        for j in range(output.shape[1]):
            total += grad[i, j]
        for j in range(output.shape[1]):
            out[i, j] = grad[i, j] - _exp(output[i, j]) * total


@_compiled(2, 2, 1, 2)
def linear(x, w, b, out):
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            # float64 keeps a short dot product exact enough to round once
            total = np.float64(b[j])
            for k in range(x.shape[1]):
                total += np.float64(x[i, k]) * np.float64(w[j, k])
            out[i, j] = total


@_compiled(2, 1, 1, types.float64, 2)
def layer_norm(x, w, b, eps, out):
    n = x.shape[1]
    for i in range(x.shape[0]):
        mean = 0.0
        for j in range(n):
            mean += x[i, j]
        mean /= n
        square = 0.0
        for j in range(n):
            d = x[i, j] - mean
            square += d * d
        scale = 1.0 / math.sqrt(square / n + eps)
        for j in range(n):
            out[i, j] = (x[i, j] - mean) * scale * w[j] + b[j]


@_compiled(2, types.float64, 2)
def layer_norm_plain(x, eps, out):
    n = x.shape[1]
    for i in range(x.shape[0]):
        mean = 0.0
        for j in range(n):
            mean += x[i, j]
        mean /= n
        square = 0.0
        for j in range(n):
            d = x[i, j] - mean
            square += d * d
        scale = 1.0 / math.sqrt(square / n + eps)
        for j in range(n):
            out[i, j] = (x[i, j] - mean) * scale


@_compiled(2, _LABELS, types.int64, types.boolean, 0)
def cross_entropy(x, y, ignored, average, out):
    """The mean or sum over the rows; raises ValueError where a label is no class."""
    total = 0.0
    kept = 0
    classes = x.shape[1]
    if y.shape[0] != x.shape[0]:
        raise ValueError("one label for each row")
    for i in range(x.shape[0]):
        label = y[i]
        if label == ignored:
            continue
        if label < 0 or label >= classes:
            raise ValueError("a label is no class")
        kept += 1
        top = x[i, 0]
        for j in range(1, classes):
            if x[i, j] > top or x[i, j] != x[i, j]:
                top = x[i, j]
        row = 0.0
        for j in range(classes):
            row += _exp(x[i, j] - top)
        total += math.log(row) - (x[i, label] - top)
    out[()] = total / kept if average else total


def _log_sum_exp(row):
    """The largest number of the row, and ``log sum exp(row - largest)``."""


@overload(_log_sum_exp, inline="always")
def _log_sum_exp_of(row):
    top, total = fold_of(_char(row), "top"), sum_exp_of(_char(row))

    def find(row):
        largest = top(row)
        return largest, math.log(total(row, largest))

    return find


@_compiled(2, _LABELS, types.int64, types.boolean, 0)
def cross_entropy_long(x, y, ignored, average, out):
    """As ``cross_entropy``, of rows of whole vectors."""
    full_vectors()
    total = 0.0
    kept = 0
    classes = x.shape[1]
    given = _flat(x)
    if y.shape[0] != x.shape[0]:
        raise ValueError("one label for each row")
    for i in range(x.shape[0]):
        label = y[i]
        if label == ignored:
            continue
        if label < 0 or label >= classes:
            raise ValueError("a label is no class")
        kept += 1
        top, row = _log_sum_exp(row_of(given, i, classes))
        total += row - (x[i, label] - top)
    out[()] = total / kept if average else total


@_compiled(0, 2, _LABELS, types.int64, types.boolean, 2)
def cross_entropy_backward(grad, x, y, ignored, average, out):
    """``softmax(row) - onehot(label)`` times ``grad``, divided by the labels kept for a mean."""
    classes = x.shape[1]
    kept = 0
    for i in range(x.shape[0]):
        if y[i] != ignored:
            kept += 1
    scale = grad[()] / kept if average else grad[()]
    for i in range(x.shape[0]):
        label = y[i]
        if label == ignored:
            for j in range(classes):
                out[i, j] = 0.0
            continue
        top = x[i, 0]
        for j in range(1, classes):
            if x[i, j] > top or x[i, j] != x[i, j]:
                top = x[i, j]
        total = 0.0
        for j in range(classes):
            e = _exp(x[i, j] - top)
            out[i, j] = e
            total += e
        for j in range(classes):
            out[i, j] = out[i, j] / total * scale
        if 0 <= label < classes:  # the forward pass refused any other
            out[i, label] = out[i, label] - scale


@_compiled(2, 2, types.float64, 2)
def threshold_backward(grad, x, threshold, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = 0.0 if x[i, j] <= threshold else grad[i, j]


@_compiled(_STRIDED, 2, types.float64, 2)
def threshold_backward_strided(grad, x, threshold, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = 0.0 if x[i, j] <= threshold else grad[i, j]


#: the names of all functions
FUNCTIONS = tuple(_sources)
