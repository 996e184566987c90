"""Max pooling of small images inside a compiled graph, and its gradient.

The first maximum of a window, in row order, gets the gradient; a NaN is larger than every number.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

__all__ = ["LARGEST", "Pooling", "pooling"]

#: elements of the input up to which these loops beat NumPy's passes over whole arrays, which
#: cost microseconds each but handle many elements at a time
LARGEST = 1 << 16

_FORWARD = """# operands: {letter} {letter}
def loop(address, lo, hi):
    given, made = word(address, 0), word(address, 1)
    high, wide = word(address, 2), word(address, 3)
    rows, columns = word(address, 4), word(address, 5)
    for plane in range(lo, hi):
        for row in range(rows):
            for column in range(columns):
                at = (plane * high + row * {down}) * wide + column * {across}
                top = load_0(given, at)
                for y in range({tall}):
                    for x in range({broad}):
                        value = load_0(given, at + y * {step_down} * wide + x * {step_across})
                        if value > top or (value != value and top == top):
                            top = value
                store_1(made, (plane * rows + row) * columns + column, top)
    return 0
"""
_BACKWARD = """# operands: {letter} {letter} {letter}
def loop(address, lo, hi):
    given, gradient, made = word(address, 0), word(address, 6), word(address, 1)
    high, wide = word(address, 2), word(address, 3)
    rows, columns = word(address, 4), word(address, 5)
    for k in range(lo * high * wide, hi * high * wide):
        store_2(made, k, {number}(0))
    for plane in range(lo, hi):
        for row in range(rows):
            for column in range(columns):
                at = (plane * high + row * {down}) * wide + column * {across}
                top, best = load_0(given, at), at
                for y in range({tall}):
                    for x in range({broad}):
                        place = at + y * {step_down} * wide + x * {step_across}
                        value = load_0(given, place)
                        if value > top or (value != value and top == top):
                            top, best = value, place
                own = load_1(gradient, (plane * rows + row) * columns + column)
                store_2(made, best, load_2(made, best) + own)
    return 0
"""


class Pooling(NamedTuple):
    """The text of a loop over planes, its arguments after the arrays, and how many planes."""

    text: str
    words: list[int]
    count: int


def pooling(x: np.ndarray, pooled: tuple[int, ...], options: Any, back: bool) -> Pooling | None:
    """The loop for max pooling of ``x``, or for its gradient; None where NumPy is to do it.

    Args:
        x: the input.
        pooled: the shape of the output.
        options: kernel size, stride, padding, dilation and ceil_mode.
        back: whether it is the gradient.
    """
    kernel, stride, padding, dilation, ceil = options
    n = len(kernel)
    kind = {"float32": "f", "float64": "d"}.get(x.dtype.name)
    if n > 2 or any(padding) or ceil or x.size > LARGEST or not x.size or not prod(pooled):
        return None
    if kind is None or not x.flags.c_contiguous:
        return None
    one = (1,) * (2 - n)
    (tall, broad), (down, across), (step_down, step_across) = (
        (*one, *values) for values in (kernel, stride, dilation)
    )
    text = (_BACKWARD if back else _FORWARD).format(
        letter=kind,
        number="float32" if kind == "f" else "float64",
        tall=tall,
        broad=broad,
        down=down,
        across=across,
        step_down=step_down,
        step_across=step_across,
    )
    words = [*one, *x.shape[-n:], *one, *pooled[-n:]]
    return Pooling(text, words, prod(x.shape[:-n]))
