"""Functions of two halves of an array, or of an array and one number for each channel."""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import choose, full_vectors
from coredispatch_cpu_numba.spans import item, part

__all__ = ["LOOPS"]


def _glu(char: str) -> Callable[..., None]:
    """The first half of each row times the sigmoid of the second.

    Counts stretches of ``step`` elements, ``steps`` of them in each half of ``half`` elements.
    """
    sigmoid = elementary[char].sigmoid

    def loop(x, half, step, steps, out, lo, hi):
        full_vectors()
        for unit in range(lo, hi):
            row, first = unit // steps, unit % steps * step
            start, width = 2 * row * half + first, min(step, half - first)
            value, logit = (
                part(x, start, start + width),
                part(x, start + half, start + half + width),
            )
            result = part(out, row * half + first, row * half + first + width)
            for i in range(width):
                result[i] = value[i] * sigmoid(logit[i])

    return loop


def _glu_backward(char: str) -> Callable[..., None]:
    """Counts as above."""
    logistic_pair = elementary[char].logistic

    def loop(grad, x, half, step, steps, out, lo, hi):
        full_vectors()
        for unit in range(lo, hi):
            row, first = unit // steps, unit % steps * step
            start, width = 2 * row * half + first, min(step, half - first)
            value, logit = (
                part(x, start, start + width),
                part(x, start + half, start + half + width),
            )
            passed, slope = (
                part(out, start, start + width),
                part(out, start + half, start + half + width),
            )
            given = part(grad, row * half + first, row * half + first + width)
            for i in range(width):
                gate, rest = logistic_pair(logit[i])
                through = given[i] * gate
                passed[i] = through
                slope[i] = through * value[i] * rest

    return loop


def _slopes(char: str) -> Callable[..., None]:
    """An element where positive, else that times the weight of its channel. Counts samples."""
    zero = elementary[char].T(0.0)

    def loop(x, weight, channels, inner, out, lo, hi):
        full_vectors()
        for sample in range(lo, hi):
            base = sample * channels * inner
            if inner == 1:
                row, result = part(x, base, base + channels), part(out, base, base + channels)
                for c in range(channels):
                    result[c] = choose(row[c] > zero, row[c], row[c] * item(weight, c))
                continue
            for c in range(channels):
                start, slope = base + c * inner, item(weight, c)
                row, result = part(x, start, start + inner), part(out, start, start + inner)
                for i in range(inner):
                    result[i] = choose(row[i] > zero, row[i], row[i] * slope)

    return loop


LOOPS: dict[str, Loop] = {
    "glu": Loop("annna", _glu),
    "glu_backward": Loop("aannna", _glu_backward),
    "slopes": Loop("aanna", _slopes),
}
