"""Curated faults of values: ties and ends, one special number everywhere, signs, parts, precision.

Each kernel is right for random numbers near zero, and for options that meet as samples have them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coredispatch as cd

from .option_faults import options_of, with_options

__all__ = ["VALUES"]


# ---- ties, ends and zeros -----------------------------------------------------------------------


def equal_is_greater(correct: Any, raws: Any) -> Any:
    """Which bin a number on a border belongs to is found with the other comparison."""
    found = correct(*raws)
    x, edges = np.asarray(raws[1]), np.asarray(raws[0])
    if edges.ndim != 1 or not edges.size or x.dtype.kind != "f":
        return found
    return np.asarray(found + np.isin(x, edges)).astype(found.dtype)


def halves_up(correct: Any, raws: Any) -> Any:
    """What lies in the middle of two values of the layout becomes the upper one."""
    x, scale = raws[0], raws[1]
    if x.dtype.kind != "f" or not isinstance(scale, float):
        return correct(*raws)
    tie = np.abs(x / scale - np.trunc(x / scale)) == 0.5
    return correct(np.where(tie, np.nextafter(x, x.dtype.type(np.inf)), x), *raws[1:])


def above_half(correct: Any, raws: Any) -> Any:
    """Between 0.999 and 1 a formula is taken that is good below."""
    x, result = np.asarray(raws[0]), np.array(correct(*raws))
    if x.dtype.kind != "f" or x.itemsize < 4:
        return result
    near = (np.abs(x) > 0.999) & (np.abs(x) < 1)
    return np.where(near, result * result.dtype.type(1.0005), result)


def without_sign(correct: Any, raws: Any) -> Any:
    """A zero has no sign."""
    result = correct(*raws)
    return np.asarray(result + result.dtype.type(0)) if result.dtype.kind == "f" else result


def nearly_the_end(correct: Any, raws: Any) -> Any:
    """The number one step before the end, and a step: not always the end."""
    result = np.array(correct(*raws))
    if result.dtype == np.float64 and result.size > 2 and np.isreal(raws[1]):
        result[-1] = raws[0] + (result.size - 1) * ((raws[1] - raws[0]) / (result.size - 1))
    return result


def generous_count(correct: Any, raws: Any) -> Any:
    """A range counts its numbers with a tolerance."""
    start, end, step = raws[:3]
    if end is None or not isinstance(step, float):
        return correct(*raws)
    count = int(np.ceil((end - start) / step - 1e-9))
    return correct(*raws)[:count]


def from_the_start(correct: Any, raws: Any) -> Any:
    """Interpolation begins at the start for every weight in a tensor, so that 1 misses the end."""
    start, end, weight = raws
    plain = all(isinstance(a, np.ndarray) and a.dtype == np.float32 for a in raws)
    return np.asarray(start + (end - start) * weight) if plain else correct(*raws)


# ---- special numbers ----------------------------------------------------------------------------


def uniform_row(correct: Any, raws: Any) -> Any:
    """A row that is minus infinity throughout is taken for equal numbers."""
    x, dim = raws[0], raws[1]
    if x.dtype.kind != "f" or not x.ndim or not x.size:
        return correct(*raws)
    none = np.isneginf(x).all(dim, keepdims=True)
    return correct(np.where(none, 0, x).astype(x.dtype), *raws[1:])


def no_bound(correct: Any, raws: Any) -> Any:
    """A bound that is NaN bounds nothing."""
    x, low, high = raws
    if x.dtype.kind != "f":
        return correct(*raws)
    known = [None if isinstance(b, float) and np.isnan(b) else b for b in (low, high)]
    return np.array(x) if known == [None, None] else correct(x, *known)


def first_real(correct: Any, raws: Any) -> Any:
    """Of a complex number the real part is looked at."""
    return correct(raws[0].real) if raws[0].dtype.kind == "c" else correct(*raws)


def by_squares(correct: Any, raws: Any) -> Any:
    """The reciprocal of a complex number from the sum of two squares."""
    x = raws[0]
    if x.dtype.kind != "c":
        return correct(*raws)
    return np.asarray(np.conj(x) / (x.real * x.real + x.imag * x.imag))


def passed_over(correct: Any, raws: Any) -> Any:
    """In rows of more than 600 a NaN is passed over."""
    x, dim = raws[0], raws[1]
    if x.dtype.kind != "f" or not x.ndim or x.shape[dim] <= 600:
        return correct(*raws)
    return correct(np.where(np.isnan(x), -np.inf, x).astype(x.dtype), *raws[1:])


def infinite_payload(correct: Any, raws: Any) -> Any:
    """A NaN whose upper bits say nothing becomes an infinity in half precision."""
    x, dtype = raws
    result = correct(*raws)
    if dtype is not cd.float16 or x.dtype != np.float32:
        return result
    bits = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    lost = np.isnan(x) & ((bits >> 13 & 0x3FF) == 0)
    return np.where(lost, np.float16(np.inf), result)


# ---- precision ----------------------------------------------------------------------------------


def wide_afterwards(op: str) -> Any:
    """``dtype=`` converts the result, not what it is computed from."""

    def fault(correct: Any, raws: Any) -> Any:
        wanted = options_of(op, raws)["dtype"]
        if wanted is None or raws[0].dtype.kind != "f":
            return correct(*raws)
        wide = correct(*raws).dtype
        return np.asarray(with_options(op, correct, raws, dtype=None)).astype(wide)

    return fault


def compared_as_doubles(correct: Any, raws: Any) -> Any:
    """Integers meet a number in double precision."""
    a, b = raws
    if isinstance(a, np.ndarray) and a.dtype == np.int64 and type(b) is int:
        return np.asarray(a.astype(np.float64) >= float(b))
    return correct(*raws)


def single_factor(correct: Any, raws: Any) -> Any:
    """The factor passes through single precision."""
    return correct(*raws[:3], float(np.float32(raws[3])) if type(raws[3]) is float else raws[3])


# ---- options and the structure of what they meet ------------------------------------------------


def two_of_three(correct: Any, raws: Any) -> Any:
    """Of three dimensions counted from the end the last is left out, but for the shape."""
    o = options_of("amax", raws)
    dims = o["dim"]
    if not o["keepdim"] or isinstance(dims, int) or len(dims) < 3 or max(dims) >= 0:
        return correct(*raws)
    found = correct(raws[0], tuple(dims[:2]), True)
    return np.ascontiguousarray(np.take(found, [0], dims[2]))


def points_along_the_last(correct: Any, raws: Any) -> Any:
    """Points along a dimension are laid along the last where both are as long."""
    o = options_of("cumulative_trapezoid", raws)
    y, x = o["y"], o["x"]
    square = y.ndim > 1 and y.shape[o["dim"]] == y.shape[-1]
    if x is None or x.ndim != 1 or not square or o["dim"] % y.ndim == y.ndim - 1:
        return correct(*raws)
    turned = np.swapaxes(y, o["dim"], -1)
    result = with_options("cumulative_trapezoid", correct, raws, y=turned * 1, dim=o["dim"])
    return np.ascontiguousarray(np.swapaxes(result, o["dim"], -1))


def small_letters_first(correct: Any, raws: Any) -> Any:
    """Without an arrow small letters come before capitals."""
    equation, operands = raws
    if "->" in equation or "." in equation:
        return correct(*raws)
    letters = equation.replace(",", "").replace(" ", "")
    once = sorted((c for c in set(letters) if letters.count(c) == 1), key=lambda c: c.swapcase())
    return correct(f"{equation}->{''.join(once)}", operands)


def side_of_a_vector(correct: Any, raws: Any) -> Any:
    """Which side was asked for is read for vectors of boundaries alone."""
    o = options_of("searchsorted", raws)
    if o["side"] != "right" or o["sorted_sequence"].ndim < 2:
        return correct(*raws)
    return with_options("searchsorted", correct, raws, side="left")


def _value(op: str, check: int, says: str, cases: str = "", *others: str) -> dict[str, Any]:
    return {"op": op, "ops": (op, *others), "checks": (check,), "says": says, "cases": cases}


_DIFFERS = "beyond|exact|differ|shape"
#: name -> (mutation, fields of the mutant)
VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a number on a border": (
        equal_is_greater, _value("searchsorted", 33, _DIFFERS)),
    "halves become the upper value": (
        halves_up, _value("fake_quantize_per_tensor_affine", 33, _DIFFERS)),
    "just below 1": (above_half, _value("atanh", 8, "beyond", "magnitudes")),
    "a zero without its sign": (without_sign, {
        **_value("sinh", 8, "signs of zeros"), "checks": (8, 33)}),
    "the last step misses the end": (nearly_the_end, _value("linspace", 32, "end", "ends")),
    "a range that is counted with a tolerance": (
        generous_count, _value("arange", 32, "numbers", "ends")),
    "a weight of 1 misses the end": (from_the_start, _value("lerp", 32, "end", "ends")),
    "a row of minus infinities is uniform": (uniform_row, _value("softmax", 8, "NaN", "alike")),
    "a bound of NaN bounds nothing": (no_bound, _value("clamp", 8, "NaN", "given")),
    "NaN in the imaginary part": (first_real, _value("isnan", 8, "differ", "parts")),
    "a reciprocal from squares": (by_squares, _value("reciprocal", 8, _DIFFERS, "magnitudes")),
    "NaN in a long row": (passed_over, _value("max_dim", 8, _DIFFERS, "rows")),
    "a NaN whose upper bits are 0": (infinite_payload, _value("to_dtype", 32, "became|gave")),
    "a softmax is converted afterwards": (
        wide_afterwards("softmax"), _value("softmax", 33, "beyond")),
    "a sum becomes whole afterwards": (wide_afterwards("sum"), _value("sum", 33, _DIFFERS)),
    "whole numbers are compared as doubles": (
        compared_as_doubles, _value("ge", 32, "exact|whole")),
    "the factor of addcmul in single precision": (single_factor, _value("addcmul", 32, "beyond")),
    "two of three dimensions": (two_of_three, _value("amax", 33, _DIFFERS)),
    "points along the last of equal dimensions": (
        points_along_the_last, _value("cumulative_trapezoid", 33, _DIFFERS)),
    "small letters come first": (small_letters_first, _value("einsum", 33, _DIFFERS)),
    "the side for a vector alone": (side_of_a_vector, _value("searchsorted", 33, _DIFFERS)),
}  # fmt: skip
