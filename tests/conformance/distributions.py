"""Value distributions: which numbers the arrays of a combination hold.

A distribution turns a shape into numbers of a dtype. The plain ones (``uniform``, ``biased``,
``ties``, ``offset_mean``) stay inside the op's value domain; ``extremes``, ``special`` and
``integer_extremes`` leave it on purpose, and only where the sampler asked for no particular
domain.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

__all__ = [
    "FLOAT_DISTRIBUTIONS",
    "INTEGER_DISTRIBUTIONS",
    "DISTRIBUTIONS",
    "extremes",
    "fill",
    "integer_range",
    "distributions_for",
    "specials",
]

FLOAT_DISTRIBUTIONS = ("uniform", "biased", "ties", "offset_mean", "special", "extremes")
INTEGER_DISTRIBUTIONS = ("uniform", "biased", "ties", "integer_extremes")
DISTRIBUTIONS = (*FLOAT_DISTRIBUTIONS, "integer_extremes")


def distributions_for(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """The distributions that make sense for ``dtype``."""
    if dtype.kind == "b":
        return ("uniform", "biased")
    if dtype.kind == "c":
        # What becomes of complex infinities and NaN is left open by C's Annex G.
        return ("uniform", "biased", "ties", "offset_mean")
    return INTEGER_DISTRIBUTIONS if dtype.kind in "iu" else FLOAT_DISTRIBUTIONS


def limits(dtype: np.dtype[Any]) -> Any:
    """``finfo`` of a floating dtype, that of the components for a complex one."""
    return ml_dtypes.finfo(dtype) if dtype.kind == "V" else np.finfo(dtype)


def specials(dtype: np.dtype[Any], moderate: bool) -> np.ndarray[Any, Any]:
    """NaN, infinities and zeros, and the smallest numbers unless ``moderate``."""
    info = limits(dtype)
    tiny = float(info.smallest_subnormal)
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    if not moderate:  # products of these underflow
        values += [tiny, -tiny, float(info.smallest_normal)]
    return np.array(values)


def extremes(dtype: np.dtype[Any], moderate: bool) -> np.ndarray[Any, Any]:
    """The largest and smallest numbers; ``moderate`` ones can be squared and added up."""
    info = limits(dtype)
    if moderate:  # squares and short sums of these stay finite
        exponent = min(int(np.log2(float(info.max))) // 4, 40)
        big, small = 2.0**exponent, 2.0**-exponent
        return np.array([big, -big, small, -small, 1.0, -1.0, 0.75 * big])
    big, small = float(info.max), float(info.smallest_normal)
    return np.array([big, -big, small, -small, big / 2, -big / 4, 1.0, -1.0])


def fill(
    distribution: str,
    dtype: np.dtype[Any],
    count: int,
    rng: np.random.Generator,
    low: float,
    high: float,
    *,
    free: bool,
    moderate: bool,
) -> np.ndarray[Any, Any]:
    """``count`` numbers of ``dtype``.

    ``low`` and ``high`` bound the plain distributions. ``free`` says that the op takes any value of
    the dtype here; ``moderate`` keeps extremes small enough for sums of products.
    """
    kind = dtype.kind
    if kind == "b":
        return rng.random(count) < (0.8 if distribution == "biased" else 0.5)
    if kind in "iu":
        return _integers(distribution, dtype, count, rng, low, high, free)
    if kind == "c":
        part = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
        options = {"free": free, "moderate": True}
        real = fill(distribution, part, count, rng, low, high, **options)
        imaginary = fill(distribution, part, count, rng, low, high, **options)
        # Assigned part by part: real + 1j * imaginary makes NaN of infinities.
        both = np.empty(count, dtype)
        both.real, both.imag = real, imaginary
        return both
    return _floats(distribution, count, rng, low, high, dtype, free, moderate).astype(dtype)


def integer_range(dtype: np.dtype[Any], low: float, high: float) -> tuple[int, int]:
    """The first and the last integer of the value domain ``low`` to ``high``."""
    signed = dtype.kind == "i"
    start = int(np.ceil(low * 2)) if signed else max(int(np.ceil(low)), 0)
    return start, max(int(np.floor(high * 2)) if signed else 8, start)


def _integers(
    distribution: str,
    dtype: np.dtype[Any],
    count: int,
    rng: np.random.Generator,
    low: float,
    high: float,
    free: bool,
) -> np.ndarray[Any, Any]:
    start, stop = integer_range(dtype, low, high)
    if distribution == "biased":
        start = max(start, min(1, stop))
    elif distribution == "ties":
        stop = min(start + 1, stop)
    values = rng.integers(start, stop + 1, count).astype(dtype)
    if distribution == "integer_extremes" and free and count:
        info = np.iinfo(dtype)
        edges = np.array(
            [info.min, info.max, info.max - 1, info.min + 1, 0, 1, info.max // 2 + 1], dtype
        )
        chosen = rng.random(count) < 0.6
        chosen[rng.integers(0, count)] = True
        values = np.where(chosen, rng.choice(edges, count), values)
    return values


def _floats(
    distribution: str,
    count: int,
    rng: np.random.Generator,
    low: float,
    high: float,
    dtype: np.dtype[Any],
    free: bool,
    moderate: bool,
) -> np.ndarray[Any, Any]:
    if distribution == "biased":
        middle = max((low + high) / 2, 0.0) if high > 0 else (low + high) / 2
        return rng.uniform(middle, high, count)
    if distribution == "ties":
        return rng.choice(np.linspace(low, high, 5)[1:4], count)
    if distribution == "offset_mean" and free:
        # Far from zero, as far as squares and the spread still have digits.
        middle = {2: 32.0 if dtype.kind == "f" else 16.0}.get(dtype.itemsize, 1000.0)
        return middle + rng.uniform(low, high, count)
    values = rng.uniform(low, high, count)
    if distribution in ("special", "extremes") and free and count:
        odd = specials(dtype, moderate) if distribution == "special" else extremes(dtype, moderate)
        share = 0.3 if distribution == "special" else 0.6
        chosen = rng.random(count) < share
        chosen[rng.integers(0, count)] = True
        values = np.where(chosen, rng.choice(odd, count), values)
    return values
