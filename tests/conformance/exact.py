"""Results to the last bit: rounding once to nearest even, and operands that show where it is not.

Doubles are rounded to a narrower format by arithmetic on their significands, so that no library's
own conversion is trusted. For formats of at most 24 bits the sum, difference, product, quotient
and root in double precision, rounded once more, are the correctly rounded ones (Figueroa, "When is
double rounding innocuous?", 1995).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .distributions import limits

__all__ = ["binary_operands", "doubles_between", "factors", "good_sum", "nearest", "wide_integers"]


def _format(dtype: np.dtype[Any]) -> tuple[int, int, float]:
    """``(bits of the significand, exponent of the smallest subnormal, largest number)``."""
    info = limits(dtype)
    smallest = float(info.smallest_subnormal)
    return int(round(1 - np.log2(float(info.eps)))), int(np.log2(smallest)), float(info.max)


def nearest(values: Any, dtype: Any) -> Any:
    """Doubles rounded once to a floating dtype, halves to even, as doubles."""
    dtype = np.dtype(dtype)
    wide = np.asarray(values, np.float64)
    if dtype == np.float64:
        return wide
    bits, least, largest = _format(dtype)
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(wide)
        step = np.maximum(exponent - bits, least)
        rounded = np.ldexp(np.rint(np.ldexp(wide, -step)), step)
        limit = largest + np.ldexp(1.0, int(np.log2(largest)) - bits)
        over = np.abs(wide) >= limit
        rounded = np.where(over, np.copysign(np.inf, wide), rounded)
    return np.where(np.isfinite(wide), rounded, wide)


def _significands(rng: np.random.Generator, count: int, bits: int) -> Any:
    return rng.integers(2 ** (bits - 1), 2**bits, count).astype(np.float64) * 2.0 ** (1 - bits)


def binary_operands(name: str, dtype: Any, seed: int) -> tuple[Any, Any]:
    """Pairs whose exact results lie at, or next to, the middle between two numbers of ``dtype``."""
    dtype = np.dtype(dtype)
    bits, least, largest = _format(dtype)
    rng = np.random.default_rng(seed)
    n = 400
    a, b = _significands(rng, n, bits), _significands(rng, n, bits)
    if name in ("add", "sub"):
        b = np.ldexp(b, -rng.integers(0, bits + 3, n))
        half = np.ldexp(1.0 + 0 * b[:100], -bits)  # exactly half a unit of the first
        b[:100] = half * rng.choice((1.0, 1.0 + 2.0 ** (1 - bits), 1.0 - 2.0**-bits), 100)
    elif name == "mul":
        short = (bits + 2) // 2
        a[:150], b[:150] = _significands(rng, 150, short), _significands(rng, 150, short)
        b[150:200] = 1.5
    else:
        b[:50] = 3.0
    sign = rng.choice((-1.0, 1.0), n)
    lowest = least + bits
    shift = rng.integers(-6, 6, n)
    a, b = np.ldexp(a * sign, shift), np.ldexp(b, shift if name in ("add", "sub") else 0)
    small_a, small_b = _significands(rng, 60, bits), _significands(rng, 60, bits)
    if name == "mul":
        small_b = np.ldexp(small_b, -4)
        small_a = np.ldexp(small_a, lowest + rng.integers(-1, 4, 60))
    elif name == "div":
        small_a, small_b = np.ldexp(small_a, lowest), np.ldexp(small_b, rng.integers(0, 5, 60))
    else:
        small_a, small_b = np.ldexp(small_a, lowest), np.ldexp(small_b, lowest)
    edge = np.array([largest, -largest, largest, 1.0, 0.0, -0.0])
    other = np.array([largest / 2, 1.0, 1.0, largest, 1.0, 1.0])
    pairs = np.concatenate([a, small_a, edge]), np.concatenate([b, small_b, other])
    return nearest(pairs[0], dtype).astype(dtype), nearest(pairs[1], dtype).astype(dtype)


def doubles_between(dtype: Any, seed: int) -> Any:
    """Doubles at, just above and just below the middles between numbers of ``dtype``."""
    bits, least, largest = _format(np.dtype(dtype))
    rng = np.random.default_rng(seed)
    middle = _significands(rng, 300, bits) + 2.0**-bits
    shift = rng.integers(-8, 9, 300)
    moved = middle * (1 + rng.choice((0.0, 0.0, 2.0**-50, -(2.0**-50), 2.0**-30), 300))
    small = np.ldexp(rng.integers(0, 40, 60) + 0.5, least)
    small[::3] = np.nextafter(small[::3], 1.0)
    unit = np.ldexp(1.0, int(np.log2(largest)) - bits)
    edges = np.array([largest, largest + unit, np.nextafter(largest + unit, 0.0), 0.0, -0.0])
    if np.dtype(dtype) == np.float64:
        edges = np.array([largest, 0.0, -0.0])
        small = np.array([5e-324, 1e-310])
    special = np.array([np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0**-20])
    sign = rng.choice((-1.0, 1.0), 300)
    return np.concatenate([np.ldexp(moved * sign, shift), small, -small, edges, special])


def wide_integers(shape: Any, dtype: Any, seed: int) -> Any:
    """Integers that doubles cannot hold, many of them neighbours."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    bits = 8 * dtype.itemsize - (dtype.kind == "i")
    base = np.array([2 ** min(bits - 2, 53) + 1, 2 ** (bits - 2) - 1, 2 ** (bits - 1) - 3], dtype)
    found = base[rng.integers(0, 2, shape)] + rng.integers(0, 3, shape).astype(dtype)
    if dtype.kind == "i":
        found = np.where(rng.random(shape) < 0.3, -found, found)
    return np.asarray(found).astype(dtype).reshape(shape)


def factors(shape: Any, dtype: Any, seed: int, lone: bool) -> Any:
    """Integers whose products doubles cannot hold: roots of such, or ``lone`` ones among ones."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    bits = 8 * dtype.itemsize - (dtype.kind == "i")
    if not lone:
        near = 2 ** (bits // 2 - 2) + rng.integers(0, 2 ** (bits // 4), shape) * 2 + 1
        return np.asarray(near).astype(dtype).reshape(shape)
    found = np.asarray(rng.choice((1, 1, 3), shape)).astype(dtype).reshape(shape)
    found.reshape(-1)[:1] = 2 ** (bits - 9) + 1
    return found


def good_sum(count: int) -> float:
    """The error of a good algorithm, in units of single precision times the sum of magnitudes.

    Blocks, lanes and trees all stay far below it; one accumulator for everything does not.
    """
    return 16.0 + np.sqrt(count) / 4
