"""Quantized arithmetic written a second time, in Python integers and exact fractions.

Slow loops over unbounded ints: nothing here can round, wrap or be vectorised wrongly. It shares
no code with the package and follows the written definition, not the kernels.
"""

from __future__ import annotations

import itertools
import struct
from fractions import Fraction

INT32 = (-(2**31), 2**31 - 1)


def float32(x: float) -> float:
    """``x`` rounded to float32."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def half_even(x: Fraction) -> int:
    return round(x)


def half_away(x: Fraction) -> int:
    whole = int(abs(x) + Fraction(1, 2))
    return whole if x >= 0 else -whole


def half_up(x: Fraction) -> int:
    return (2 * x.numerator + x.denominator) // (2 * x.denominator)


def split(factor: float) -> tuple[int, int]:
    """Multiplier in [2**30, 2**31) and shift with factor = multiplier / 2**(31 + shift)."""
    exact = Fraction(float32(factor))
    if exact < Fraction(1, 2**32):
        return 0, 0
    shift = 0
    while exact < Fraction(1, 2):
        exact, shift = exact * 2, shift + 1
    while exact >= 1:
        exact, shift = exact / 2, shift - 1
    multiplier = exact * 2**31
    assert multiplier.denominator == 1
    return int(multiplier), shift


def requantize(acc: int, factor: float, zero_point: int, low: int, high: int) -> int:
    assert INT32[0] <= acc <= INT32[1]
    multiplier, shift = split(factor)
    q31 = half_up(Fraction(acc * multiplier, 2 ** (31 + min(shift, 0))))
    scaled = half_away(Fraction(q31, 2 ** max(shift, 0)))
    return min(max(scaled, low - zero_point), high - zero_point) + zero_point


def bias_steps(bias: float, scale: float) -> int:
    return half_even(Fraction(float(bias) / scale))


def at(parameter, channel):
    """A per-tensor or per-channel parameter as a Python number."""
    try:
        return parameter[channel].item()
    except TypeError:
        return parameter


def conv2d(x, zx, sx, w, zw, sw, bias, scale, zero, low, high, stride, padding, dilation, groups):
    """Nested lists in, nested lists out; ``zw`` and ``sw`` may vary per output channel."""
    batch, height, width = len(x), len(x[0][0]), len(x[0][0][0])
    n, per_group, kh, kw = len(w), len(w[0]), len(w[0][0]), len(w[0][0][0])
    oh = (height + 2 * padding[0] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width + 2 * padding[1] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = [[[[0] * ow for _ in range(oh)] for _ in range(n)] for _ in range(batch)]
    for b, o, i, j in itertools.product(range(batch), range(n), range(oh), range(ow)):
        step = sx * at(sw, o)
        acc = 0 if bias is None else bias_steps(bias[o], step)
        first = o // (n // groups) * per_group
        for c, u, v in itertools.product(range(per_group), range(kh), range(kw)):
            y = i * stride[0] - padding[0] + u * dilation[0]
            z = j * stride[1] - padding[1] + v * dilation[1]
            if 0 <= y < height and 0 <= z < width:
                acc += (x[b][first + c][y][z] - zx) * (w[o][c][u][v] - at(zw, o))
        out[b][o][i][j] = requantize(acc, step / scale, zero, low, high)
    return out


def linear(x, zx, sx, w, zw, sw, bias, scale, zero, low, high):
    """``x`` and ``w`` as lists of rows."""
    out = []
    for row in x:
        line = []
        for o, weights in enumerate(w):
            step = sx * at(sw, o)
            acc = 0 if bias is None else bias_steps(bias[o], step)
            acc += sum((a - zx) * (b - at(zw, o)) for a, b in zip(row, weights, strict=True))
            line.append(requantize(acc, step / scale, zero, low, high))
        out.append(line)
    return out
