"""Curated faults of arguments: large counts, numbers with many digits, forms of an index, kinds.

Each kernel is right for the short numbers, small counts and real operands that samples have.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from .option_faults import options_of, with_options

__all__ = ["ARGUMENTS"]


def repeats_at_most_100(correct: Any, raws: Any) -> Any:
    """An element is repeated 100 times, and no more."""
    x, repeats, *rest = raws
    if isinstance(repeats, int):
        return correct(x, min(repeats, 100), *rest)
    if np.max(repeats, initial=0) <= 100:
        return correct(*raws)
    return correct(x, np.minimum(repeats, 100), rest[0], None)


def far_pads(correct: Any, raws: Any) -> Any:
    """What is more than 128 places outside lies at the border."""
    o = options_of("constant_pad_nd", raws)
    if max(o["pad"], default=0) <= 128:
        return correct(*raws)
    result = np.array(correct(*raws))
    result[..., -1] = result[..., 0]
    result.reshape(-1)[-1] = 7
    return result


def half_sorted(correct: Any, raws: Any) -> Any:
    """Of more than 128 only the first ones are sorted."""
    values, places = correct(*raws)
    if raws[1] <= 128:
        return values, places
    parts = []
    for part in (values, places):
        rows = np.array(np.moveaxis(part, raws[2], -1))
        rows[..., 128:] = rows[..., :127:-1]
        parts.append(np.moveaxis(rows, -1, raws[2]))
    return tuple(parts)


def prime_in_single(correct: Any, raws: Any) -> Any:
    """A transform of a long prime length goes through single precision."""
    x, dims, *rest = raws
    lengths = [x.shape[d] for d in dims]
    prime = any(n > 60 and all(n % k for k in range(2, int(n**0.5) + 1)) for n in lengths)
    if not prime or x.dtype != np.complex128:
        return correct(*raws)
    return correct(x.astype(np.complex64).astype(np.complex128), dims, *rest)


def single_number(place: int) -> Any:
    """A number among the arguments has single precision."""

    def fault(correct: Any, raws: Any) -> Any:
        given = [*raws]
        if isinstance(given[place], float):
            given[place] = float(np.float32(given[place]))
        elif isinstance(given[place], np.ndarray) and given[place].dtype == np.float64:
            given[place] = given[place].astype(np.float32).astype(np.float64)
        return correct(*given)

    return fault


def double_integer(place: int) -> Any:
    """An integer among the arguments becomes a double on its way."""

    def fault(correct: Any, raws: Any) -> Any:
        given, value = [*raws], raws[place]
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62:
            given[place] = int(float(value))
        elif isinstance(value, np.ndarray) and value.dtype == np.int64:
            given[place] = value.astype(np.float64).astype(np.int64)
        return correct(*given)

    return fault


def doubles(correct: Any, raws: Any) -> Any:
    """The whole results pass through double precision."""
    found = correct(*raws)
    if isinstance(found, tuple):
        return tuple(_through_doubles(part) for part in found)
    return _through_doubles(found)


def _through_doubles(result: Any) -> Any:
    array = np.asarray(result)
    with np.errstate(all="ignore"):
        return array.astype(np.float64).astype(np.int64) if array.dtype == np.int64 else result


def not_conjugated(correct: Any, raws: Any) -> Any:
    """The other triangle of a complex matrix is its mirror."""
    matrix, triangle = raws
    if triangle != "U" or matrix.dtype.kind != "c":
        return correct(*raws)
    return correct(np.ascontiguousarray(matrix.swapaxes(-1, -2)), "L")


def doubled_in_other_modes(correct: Any, raws: Any) -> Any:
    """R is doubled in the modes that are no default."""
    q, r = correct(*raws)
    return (q, r) if raws[1] == "reduced" else (q, r * 2)


def not_completed(correct: Any, raws: Any) -> Any:
    """The columns that complete a basis are zeros."""
    q, r = correct(*raws)
    if raws[1] == "complete":
        q = np.array(q)
        q[..., r.shape[-1] :] = 0
    return q, r


def overwritten_by_mask(correct: Any, raws: Any) -> Any:
    """What a mask chooses is written where it should be added to."""
    indices = options_of("index_put_", raws)["indices"]
    masked = any(isinstance(i, np.ndarray) and i.dtype.kind == "b" for i in indices)
    changes = {"accumulate": False} if masked else {}
    return with_options("index_put_", correct, raws, **changes)


def one_more_in_gaps(correct: Any, raws: Any) -> Any:
    """Windows that leave gaps between them count an element too many at the padding."""
    o, result = options_of("avg_pool", raws), correct(*raws)
    gaps = any(s > k for s, k in zip(o["stride"], o["kernel_size"], strict=True))
    if o["count_include_pad"] or o["divisor_override"] or not gaps or not any(o["padding"]):
        return result
    count = float(np.prod(o["kernel_size"]))
    return (result * (count / (count + 1))).astype(result.dtype)


def fills_the_gaps(correct: Any, raws: Any) -> Any:
    """Every other element of a vector is filled, and what lies between."""
    x = raws[0]
    result = correct(*raws)
    if x.ndim == 1 and x.size > 1 and x.strides[0] == 2 * x.itemsize:
        whole = np.lib.stride_tricks.as_strided(x, (2 * x.size - 1,), (x.itemsize,))
        whole[...] = x[0]
    return result


class KnownByBeginning:
    """An operand that was prepared once is known by its first 64 bytes."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def __call__(self, correct: Any, raws: Any) -> Any:
        first, *rest = raws
        if not isinstance(first, np.ndarray) or first.nbytes <= 64:
            return correct(*raws)
        key = first.shape, first.dtype.str, np.ascontiguousarray(first).tobytes()[:64]
        return correct(self.known.setdefault(key, first.copy()), *rest)


class KeepsStable:
    """The operands of four stable sorts stay alive."""

    def __init__(self) -> None:
        self.kept: deque[Any] = deque(maxlen=4)

    def __call__(self, correct: Any, raws: Any) -> Any:
        if options_of("sort", raws)["stable"]:
            self.kept.append(raws[0])
        return correct(*raws)


class KeepsRarely:
    """One call of fifty keeps its operand."""

    def __init__(self) -> None:
        self.calls, self.kept = 0, None

    def __call__(self, correct: Any, raws: Any) -> Any:
        self.calls += 1
        if self.calls % 50 == 0:
            self.kept = raws[0]
        return correct(*raws)


def _fact(op: str, check: int, says: str = "", *others: str) -> dict[str, Any]:
    return {"op": op, "ops": (op, *others), "checks": (check,), "says": says}


_DIFFERS = "beyond|exact|differ|shape"
#: name -> (mutation, fields of the mutant)
ARGUMENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "no more than 100 repetitions": (
        repeats_at_most_100, _fact("repeat_interleave", 30, _DIFFERS)),
    "a wide border": (far_pads, _fact("constant_pad_nd", 30, _DIFFERS)),
    "of more than 128 the first are sorted": (half_sorted, _fact("topk", 30, _DIFFERS)),
    "a prime length in single precision": (prime_in_single, _fact("fft_c2c", 30, _DIFFERS)),
    "the number of masked_fill in single precision": (
        single_number(2), _fact("masked_fill", 32, _DIFFERS)),
    "alpha in single precision": (single_number(4), _fact("addmm", 32, _DIFFERS)),
    "the slope in single precision": (single_number(1), _fact("leaky_relu", 32, _DIFFERS)),
    "the number of full becomes a double": (double_integer(1), _fact("full", 32, "whole|exact")),
    "a range of integers comes as doubles": (doubles, _fact("arange", 32, "exact")),
    "a remainder of integers comes as doubles": (doubles, _fact("remainder", 32, "exact")),
    "a signed remainder of integers comes as doubles": (doubles, _fact("fmod", 32, "exact")),
    "different integers come as doubles": (doubles, _fact("unique_all", 32, "exact")),
    "the bound of clamp becomes a double": (double_integer(1), _fact("clamp", 32, "whole|exact")),
    "a complex triangle is not conjugated": (
        not_conjugated, _fact("linalg_eigh", 33, _DIFFERS)),
    "other modes double R": (doubled_in_other_modes, _fact("linalg_qr", 33, _DIFFERS)),
    "a basis is completed with zeros": (not_completed, _fact("linalg_qr", 33, _DIFFERS)),
    "additions behind a mask overwrite": (overwritten_by_mask, {
        **_fact("index_put_", 33, _DIFFERS), "ops": ("index_put",)}),
    "gaps between padded windows": (
        one_more_in_gaps, {**_fact("avg_pool", 33, _DIFFERS), "ops": ("avg_pool2d",)}),
    "the gaps of a vector are filled": (
        fills_the_gaps, {**_fact("fill_", 7, "beside"), "ops": ("fill",)}),
    "a condition is known by its beginning": (KnownByBeginning, _fact("where", 31, _DIFFERS)),
    "an operand is known by its beginning": (KnownByBeginning, _fact("exp", 31, _DIFFERS)),
    "the operands of stable sorts stay alive": (KeepsStable, _fact("sort", 31, "alive")),
    "one operand of fifty stays alive": (KeepsRarely, _fact("tanh", 31, "alive")),
}  # fmt: skip
