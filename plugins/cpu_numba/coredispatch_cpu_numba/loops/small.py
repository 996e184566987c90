"""Whole operators on small matrices, each one call that takes objects and returns one.

Below some thousand elements the price of an operator is the calls it is made of. Each function
here is compiled together with what stands around it in :func:`_call_of`: whether the arguments are
contiguous float32 or float64 arrays of the right dimensions, and a new array for the result; what
it does not take it leaves to the next kernel of the table by returning ``NotImplemented``. Sums are
carried in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from coredispatch_cpu_numba.atomics import address_of, array_at
from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import REDUCTION
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.layout import COLUMNS
from coredispatch_cpu_numba.loops.activation.softmax import columns_of, rows_of, sum_exp_of
from coredispatch_cpu_numba.objects import (
    OBJECT,
    array_in,
    build_function,
    elements_in,
    fits,
    fits_flat,
    made_of,
    missing,
    refused,
)
from coredispatch_cpu_numba.spans import row_of
from coredispatch_cpu_numba.tails import fold_of

__all__ = ["FUNCTIONS", "compile_function"]

_OWN = (types.float32, types.float64)
#: the most elements of what is no product
_MOST = 2048
#: the elements of the shortest rows that are gone through in whole vectors
_VECTOR = 16
#: multiplications of a matrix product
_PRODUCT = 16384
#: of softmax, whose loops are those for large arrays
_MOST_EXPONENTIALS = 8192

#: kinds of arguments: a matrix of any strides, as a gradient that was expanded from a number; an
#: array of any dimensions, whose elements are seen in a row; labels
_STRIDED, _FLAT = "strided", "flat"
_LABELS = types.Array(types.int64, 1, "C")


@dataclass(frozen=True)
class _Source:
    """What is to be compiled.

    Args:
        body: the function; takes the arguments, and last the array to write to
        kinds: of the arguments and the result: so many dimensions, one of the above, or a number
        when: whether the arguments are for this function
        shape: of the result
    """

    body: Callable[..., None]
    kinds: tuple[Any, ...]
    when: Callable[..., bool]
    shape: Callable[..., Any]


_sources: dict[str, _Source] = {}


def _compiled(
    *kinds: Any, when: Callable[..., bool], shape: Callable[..., Any] = lambda x, *_: x.shape
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Remember a :class:`_Source`."""

    def remember(body: Callable[..., Any]) -> Callable[..., Any]:
        _sources[body.__name__] = _Source(body, kinds, when, shape)
        return body

    return remember


# Are the arguments arrays of the dtype, for this function? Then make the result and fill it.
_BRANCH = """
    if {fits}:
        {read}
        if when_{own}({values}):
            made = make_{own}(shape_{own}({values}))
            if not missing(made):
                body_{own}({values}, read_{own}_{last}(made))
            return made
        return refused()
"""


def _call_of(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What is compiled for Python, and the types of its arguments."""
    source = _sources[name]
    *kinds, result = source.kinds
    arrays = [
        i for i, kind in enumerate(kinds) if not isinstance(kind, types.Number | types.Boolean)
    ]
    parameters = [f"p{i}" for i in range(len(kinds))]
    values = ", ".join(f"a{i}" if i in arrays else f"p{i}" for i in range(len(kinds)))
    scope: dict[str, Any] = {"missing": missing, "refused": refused, "__name__": __name__}
    lines = [f"def call({', '.join(parameters)}):"]
    for own in _OWN:
        scope[f"make_{own}"] = made_of(own, result)
        for part in ("when", "shape", "body"):
            function = getattr(source, part)
            scope[f"{part}_{own}"] = compiled(fastmath=set(REDUCTION))(function)
        for i, kind in [*((i, kinds[i]) for i in arrays), (len(kinds), result)]:
            scope[f"fits_{own}_{i}"], scope[f"read_{own}_{i}"] = _argument(own, kind)
        lines += _BRANCH.format(
            fits=" and ".join(f"fits_{own}_{i}(p{i})" for i in arrays),
            read="; ".join(f"a{i} = read_{own}_{i}(p{i})" for i in arrays),
            own=own,
            values=values,
            last=len(kinds),
        ).splitlines()
    source_text = "\n".join([*lines, "    return refused()"])
    exec(compile(source_text, __file__, "exec"), scope)
    signature = [OBJECT if i in arrays else kind for i, kind in enumerate(kinds)]
    return scope["call"], tuple(signature)


def _argument(own: Any, kind: Any) -> tuple[Any, Any]:
    """Whether an object is such an argument, and the array that it is."""
    if kind == _FLAT:
        return fits_flat(own), elements_in(own)
    if kind == _STRIDED:
        kind = types.Array(own, 2, "A", readonly=True)
    elif type(kind) is int:
        kind = types.Array(own, kind, "C")
    return fits(kind), array_in(kind)


def compile_function(name: str, cached_only: bool = False) -> Callable[..., Any]:
    """The C function of ``name``: it returns the result or ``NotImplemented``.

    Raises :class:`NotReady` where it is ``cached_only`` and the disk does not have it.
    """
    function, signature = _call_of(name)
    return build_function(function, signature, f"small.{name}", REDUCTION, cached_only)


def _is_small(x, *_):
    return x.size <= _MOST


def _exp(x):
    """The pack's own exponential, which vectorizes; ``math.exp`` would be a call per element."""
    return math.exp(x)


@overload(_exp, inline="always")
def _exp_of(x):
    exp = elementary["f" if x == types.float32 else "d"].exp
    return lambda x: exp(x)


def _number(*_):
    return ()


def _rows(x, *_):
    return (x.shape[0],)


def _columns(x, *_):
    return (x.shape[1],)


@_compiled(_FLAT, 0, when=_is_small, shape=_number)
def sum_all(x, out):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    out[()] = total


@_compiled(_FLAT, 0, when=_is_small, shape=_number)
def mean_all(x, out):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    out[()] = total / x.size


@_compiled(2, 1, when=_is_small, shape=_columns)
def sum_columns(x, out):
    for j in range(x.shape[1]):
        total = 0.0
        for i in range(x.shape[0]):
            total += x[i, j]
        out[j] = total


@_compiled(2, 1, when=_is_small, shape=_rows)
def sum_rows(x, out):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total


@_compiled(2, 1, when=_is_small, shape=_columns)
def mean_columns(x, out):
    for j in range(x.shape[1]):
        total = 0.0
        for i in range(x.shape[0]):
            total += x[i, j]
        out[j] = total / x.shape[0]


@_compiled(2, 1, when=_is_small, shape=_rows)
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


def _has_few_exponentials(x):
    return x.size <= _MOST_EXPONENTIALS


def _has_long_rows(x):
    return x.shape[1] >= _VECTOR and x.size <= _MOST_EXPONENTIALS


def _has_short_rows(x):
    return x.shape[1] < _VECTOR and x.size <= _MOST_EXPONENTIALS


def _are_small_twins(a, b, *_):
    return b.size <= _MOST and a.shape == b.shape


@_compiled(2, 2, when=_has_long_rows)
def softmax_long(x, out):
    _softmax_rows(x, out)


@_compiled(2, 2, when=_has_few_exponentials)
def softmax_columns(x, out):
    _softmax_columns(x, out)


@_compiled(2, 2, when=_has_short_rows)
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


@_compiled(2, 2, when=_has_long_rows)
def log_softmax_long(x, out):
    _log_softmax_rows(x, out)


@_compiled(2, 2, when=_has_few_exponentials)
def log_softmax_columns(x, out):
    _log_softmax_columns(x, out)


@_compiled(2, 2, when=_has_short_rows)
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


@_compiled(2, 2, 2, when=_are_small_twins)
def softmax_backward(grad, output, out):
    for i in range(output.shape[0]):
        inner = 0.0
        for j in range(output.shape[1]):
            inner += grad[i, j] * output[i, j]
        for j in range(output.shape[1]):
            out[i, j] = output[i, j] * (grad[i, j] - inner)


@_compiled(2, 2, 2, when=_are_small_twins)
def log_softmax_backward(grad, output, out):
    for i in range(output.shape[0]):
        total = 0.0
        for j in range(output.shape[1]):
            total += grad[i, j]
        for j in range(output.shape[1]):
            out[i, j] = grad[i, j] - _exp(output[i, j]) * total


def _are_factors(x, w, b):
    few = x.shape[0] * x.shape[1] * w.shape[0] <= _PRODUCT
    return few and x.shape[1] == w.shape[1] and b.shape[0] == w.shape[0]


@_compiled(2, 2, 1, 2, when=_are_factors, shape=lambda x, w, b: (x.shape[0], w.shape[0]))
def linear(x, w, b, out):
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            # float64 keeps a short dot product exact enough to round once
            total = np.float64(b[j])
            for k in range(x.shape[1]):
                total += np.float64(x[i, k]) * np.float64(w[j, k])
            out[i, j] = total


def _are_affine(x, w, b, eps):
    return x.size <= _MOST and x.shape[1] == w.shape[0] and x.shape[1] == b.shape[0]


@_compiled(2, 1, 1, types.float64, 2, when=_are_affine)
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


@_compiled(
    2, types.intp, types.float64, 2, when=lambda x, n, eps: x.size <= _MOST and x.shape[1] == n
)
def layer_norm_plain(x, n, eps, out):
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


def _has_labels(x, y, ignored, average):
    """Whether each row has a label that is a class; the next kernel says which has not."""
    if not 0 < x.size <= _MOST or y.shape[0] != x.shape[0]:
        return False
    for i in range(x.shape[0]):
        if y[i] != ignored and not 0 <= y[i] < x.shape[1]:
            return False
    return True


_labels_fit = compiled(_has_labels)


def _has_short_labelled_rows(x, y, ignored, average):
    return x.shape[1] < _VECTOR and _labels_fit(x, y, ignored, average)


def _has_long_labelled_rows(x, y, ignored, average):
    return x.shape[1] >= _VECTOR and _labels_fit(x, y, ignored, average)


@_compiled(2, _LABELS, types.int64, types.boolean, 0, when=_has_short_labelled_rows, shape=_number)
def cross_entropy(x, y, ignored, average, out):
    """The mean or sum over the rows."""
    total = 0.0
    kept = 0
    classes = x.shape[1]
    for i in range(x.shape[0]):
        label = y[i]
        if label == ignored:
            continue
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


@_compiled(2, _LABELS, types.int64, types.boolean, 0, when=_has_long_labelled_rows, shape=_number)
def cross_entropy_long(x, y, ignored, average, out):
    """As ``cross_entropy``, of rows of whole vectors."""
    full_vectors()
    total = 0.0
    kept = 0
    classes = x.shape[1]
    given = _flat(x)
    for i in range(x.shape[0]):
        label = y[i]
        if label == ignored:
            continue
        kept += 1
        top, row = _log_sum_exp(row_of(given, i, classes))
        total += row - (x[i, label] - top)
    out[()] = total / kept if average else total


def _has_labels_for_rows(grad, x, y, *_):
    return 0 < x.size <= _MOST and y.shape[0] == x.shape[0]


def _like_second(a, b, *_):
    return b.shape


@_compiled(
    0,
    2,
    _LABELS,
    types.int64,
    types.boolean,
    2,
    when=_has_labels_for_rows,
    shape=_like_second,
)
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


@_compiled(2, 2, types.float64, 2, when=_are_small_twins)
def threshold_backward(grad, x, threshold, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = 0.0 if x[i, j] <= threshold else grad[i, j]


@_compiled(_STRIDED, 2, types.float64, 2, when=_are_small_twins)
def threshold_backward_strided(grad, x, threshold, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = 0.0 if x[i, j] <= threshold else grad[i, j]


#: the names of all functions
FUNCTIONS = tuple(_sources)
