"""Tolerance classes turned into bounds: the suite's one table.

An operator definition names a class (``exact``, ``ulp(n)``, ``dot``, ``conditioned``); the bound
follows from the class, the result's dtype and the reference. ``u`` is the unit roundoff, ``eta``
the smallest subnormal, ``r`` the reference. NaN sets, infinities and (for exact and ulp) the signs
of zeros must match.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from .distributions import limits
from .policies import TF32_EPS, flushes, leniency
from .reference import Reference, wide

__all__ = ["Deviation", "Unstable", "compare", "nearly_equal", "unmoved"]

SELECTING = (
    "sign",
    "max",
    "min",
    "sort",
    "clamp",
    "median",
    "topk",
    "quantile",
    "mode",
    "relu",
    "hardtanh",
)
#: those of them that choose by the sign alone, or keep it
KEEPING = ("copysign", "leaky_relu", "prelu")
#: operators that multiply many numbers: what passes the largest number on the way, or the smallest,
#: comes back in a wider accumulator or in another order, and in no other
RUNNING_PRODUCTS = ("cumprod", "prod")
#: in which the inputs of a conditioned operator move: up, down, and the others at random
DIRECTIONS = 6
#: share of the part of a bound that needs no further reference: within it nobody looks at more
#: (a margin that is worth a line in a report lies beyond, see ``report.diff``)
PLAIN = 0.5
#: classes whose bounds need further runs of the reference
LAZY = ("dot", "conditioned", "intermediate")
#: class of an op whose definition names none: conditioned, with intermediate results rounded
DEFAULT = ("intermediate", 4.0)


#: how much more than one rounding of the result is allowed where inputs are taken as they are
STILL = 64.0
_still: ContextVar[bool] = ContextVar("still", default=False)


@contextlib.contextmanager
def unmoved() -> Iterator[None]:
    """Inside the block inputs are what they are: a bound is made without moving them.

    Short binary fractions - halves, borders, ends - are added and multiplied without an error, so
    that which side of a step they lie on is no matter of rounding.
    """
    token = _still.set(True)
    try:
        yield
    finally:
        _still.reset(token)


class Deviation(AssertionError):
    """A result outside its bound; ``margin`` is the worst error over it, None where none is."""

    margin: float | None = None


class Unstable(Exception):
    """A case that says nothing: its reference is chance."""


@cache
def _numbers(dtype: np.dtype[Any]) -> tuple[float, float, float, float]:
    """``(spacing at 1, smallest subnormal, largest, smallest normal)`` of a floating dtype."""
    info = limits(dtype)
    found = (info.eps, info.smallest_subnormal, info.max, info.smallest_normal)
    return tuple(map(float, found))  # type: ignore[return-value]


def _precision(dtype: np.dtype[Any]) -> tuple[float, float, float, float]:
    """The same, as it is judged by.

    Where subnormal numbers may be flushed, the smallest number is the smallest normal one.
    """
    eps, smallest, largest, normal = _numbers(dtype)
    return eps, normal if flushes(dtype) else smallest, largest, normal


def _ulp(magnitude: Any, eps: float, eta: float) -> Any:
    """Distance between neighbours of the dtype around ``magnitude``."""
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.where(magnitude > 0, magnitude, 1.0)))
        step = np.exp2(np.clip(exponent, -1074, 1023)) * eps
    return np.maximum(np.where(magnitude > 0, step, eta), eta)


def nearly_equal(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two results differ by some roundings of their largest numbers at most."""
    if a.dtype.kind == "c":
        return nearly_equal(a.real, b.real) and nearly_equal(a.imag, b.imag)
    eps, p, q = _numbers(a.dtype)[0], a.astype(np.float64), b.astype(np.float64)
    size = float(np.max(np.abs(p), initial=0.0, where=np.isfinite(p)))
    return bool(np.allclose(p, q, rtol=16 * eps, atol=16 * eps * size, equal_nan=True))


def compare(
    op: Any,
    actual: Any,
    reference: Reference,
    expected: Any,
    *,
    slack: float = 1.0,
    signs: bool = True,
    step: Any = 0.0,
    number: int = 0,
) -> float:
    """Largest error over its bound; raises :class:`Deviation` where it exceeds 1.

    Args:
        op: the operator, for its tolerance class.
        actual: the backend's result as an array.
        reference: the reference, for the further runs of ``dot`` and ``conditioned``.
        expected: the reference's result that belongs to ``actual``.
        slack: factor on the bound, for results that went through several roundings.
        signs: whether the signs of zeros count where the class says so.
        step: the distance between the values that the result's layout can hold, a number or an
            array that broadcasts to the result.
        number: which of the operator's outputs this is.
    """
    kind, units = DEFAULT if op.tolerance is None else (op.tolerance.kind, op.tolerance.ulps)
    if actual.dtype.kind in "biu":
        return _discrete(actual, expected)
    inputs = _arrays(reference.sample)
    if any(a.dtype.kind == "c" for a in inputs):
        units += 1.0  # a modulus rounds twice
    if actual.dtype.kind == "c":
        return _complex(actual, expected, kind, units, reference, slack, number)
    wanted = np.asarray(expected, np.float64) if expected.dtype.kind != "c" else expected.real
    if kind == "steps":
        return _judge(
            actual, wanted, np.broadcast_to(np.multiply(units, step), wanted.shape), signs=False
        )
    signs = signs and kind in ("exact", "ulp") and not _signless(op)
    signs = signs and not any(a.dtype.kind == "c" for a in inputs)

    vague = None  # an infinity in place of NaN, or the other way round
    if op.tolerance is not None and op.tolerance.mixed:
        vague = ~(np.isfinite(wanted) | np.isfinite(actual.astype(np.float64)))

    def judge(directions: int) -> float:
        bound = _bound(kind, units, wanted, actual.dtype, reference, op, directions, number) * slack
        return _judge(actual, wanted, bound, signs=signs, vague=vague)

    try:
        return _patiently(judge, kind)
    except Deviation:
        if op.tolerance is not None and op.tolerance.repeated and not _still.get():
            bound = _bound(kind, units, wanted, actual.dtype, reference, op, DIRECTIONS, number)
            if _unstable(bound, wanted, actual.dtype):
                raise Unstable from None
        raise


#: of the largest result: a bound beyond it leaves seven bits to be compared
VAGUE = 2.0**-7
#: share of such elements from which all of a result is taken for chance
CHANCE = 0.02


def _unstable(bound: Any, wanted: Any, dtype: np.dtype[Any]) -> bool:
    """Whether the reference is another one where its inputs are rounded otherwise.

    A long recurrence that doubles what it is given at each step is: which of its elements move
    differs from one direction to the next, and no number of directions finds them all.
    """
    finite = np.isfinite(wanted)
    if not finite.any():
        return False
    eps = _precision(dtype)[0]
    reach = max(VAGUE, 512 * eps) * np.abs(wanted[finite]).max()
    return bool(np.mean(np.asarray(bound)[finite] > reach) > CHANCE)


def _patiently(judge: Callable[[int], float], kind: str) -> float:
    """Judge by a few directions; before a failure stands, by many, and in single precision.

    The spread is a maximum over directions in which the inputs move. A few find it but for a
    factor; among thousands of elements there is one that all of them miss. Most results need
    none: they lie well within what the bound is made of beside it.
    """
    if _still.get():
        return judge(1)
    if kind in LAZY:
        with contextlib.suppress(Deviation):
            margin = judge(0)
            if margin <= PLAIN:
                return margin
    try:
        return judge(DIRECTIONS)
    except Deviation:
        if kind not in ("conditioned", "intermediate"):
            raise
        return judge(8 * DIRECTIONS)


def _signless(op: Any) -> bool:
    """Whether the sign of a zero is left open, as IEEE 754 does in a choice among values."""
    return op.name not in KEEPING and any(part in op.name for part in SELECTING)


def _discrete(actual: Any, expected: Any) -> float:
    wanted = expected
    if expected.dtype.kind == "f" and actual.dtype.kind in "iu":
        actual = actual.astype(np.float64)  # the reference rounded, so may the comparison
    elif expected.dtype != actual.dtype:
        with np.errstate(all="ignore"):
            wanted = expected.astype(actual.dtype)
    wrong = actual != wanted
    if np.any(wrong):
        _fail(wrong, actual, expected, "exact")
    return 0.0


def _complex(
    actual: Any, expected: Any, kind: str, units: float, reference: Reference, slack: float,
    number: int,
) -> float:  # fmt: skip
    part = np.dtype(np.float32 if actual.dtype.itemsize == 8 else np.float64)
    wanted = np.asarray(expected, np.complex128)
    worst = 0.0
    # A component may lose all its digits to the other one: the bound is that of the modulus.
    with np.errstate(all="ignore"):
        modulus = np.abs(wanted)
    modulus = np.where(np.isfinite(modulus), modulus, np.nan_to_num(np.abs(wanted.real)))
    units = max(units, 1.0) * 4
    vague = ~(modulus < float(np.finfo(part).max) / 8)  # intermediate results may overflow
    kind = "ulp" if kind == "exact" else kind
    for name in ("real", "imag"):
        a, w = getattr(actual, name), getattr(wanted, name)

        def judge(directions: int, a: Any = a, w: Any = w) -> float:
            bound = _bound(kind, units, modulus, part, reference, None, directions, number) * slack
            return _judge(a, w, bound, signs=False, vague=vague)

        worst = max(worst, _patiently(judge, kind))
    return worst


def _bound(
    kind: str, units: float, r: Any, dtype: Any, reference: Reference, op: Any, directions: int,
    number: int,
) -> Any:  # fmt: skip
    """Absolute error allowed for every element, with what a policy of the backend adds."""
    bound = _own_bound(kind, units, r, dtype, reference, op, directions, number)
    bound = bound * STILL if kind in LAZY[1:] and _still.get() else bound
    return np.maximum(bound, _precision(dtype)[3]) if flushes(dtype) else bound


def _own_bound(
    kind: str, units: float, r: Any, dtype: Any, reference: Reference, op: Any, directions: int,
    number: int,
) -> Any:  # fmt: skip
    eps, eta, _, _ = _precision(dtype)
    coarse = leniency().tf32 and dtype.itemsize == 4
    eps, wider = (TF32_EPS, TF32_EPS / eps) if coarse else (eps, 1.0)
    u = eps / 2
    size = np.abs(np.where(np.isfinite(r), r, 0.0))
    if kind == "exact":
        # The reference is computed in double: rounding it to the dtype is no error.
        if getattr(reference.op.reference, "of_bits", False):
            return np.zeros(r.shape)
        return 0.5 * _ulp(size, eps, eta) if dtype.itemsize < 8 else np.zeros(r.shape)
    if kind == "ulp":
        bound = (units + 0.5) * _ulp(size, eps, eta)
        product = op is not None and op.tolerance.product
        return bound + eta * _factor(reference, r) if product else bound
    if kind == "dot":
        k = _length(reference, r)
        reach = _magnitude(reference, r, number) if directions else size
        own = 2 if dtype.itemsize == 8 else 1  # in double the reference rounds as much
        # Rounding errors of equal addends are equal: they add up instead of averaging out.
        repeats = directions and reference.repeats
        growth = k if repeats else 3 * np.sqrt(k) if directions else min(k, 3 * np.sqrt(k))
        return own * (8 + growth) * u * reach + u * size + k * eta
    double = dtype.itemsize == 8
    # What is computed in a wider dtype than it comes in is as exact as that one.
    reference.finest = min(reference.finest, eps)
    moved = directions and not _still.get()
    spread = wider * _spread(reference, r, directions, number, double=double) if moved else 0.0
    # Norms and softmax sum along a dimension: the rounding errors of that sum come on top.
    sums = 3 * np.sqrt(_longest(reference))
    units += sums * min(u, 2.0**-24) / u  # half precision accumulates in float32
    bound = 3 * spread + units * u * (size + size.max(initial=0.0)) + 2 * eta
    if (
        kind == "intermediate"
    ):  # its intermediate results are as large as those of the absolute inputs
        reach = _magnitude(reference, r, number) if directions else size
        if directions > DIRECTIONS:
            reach = _signed_magnitude(reference, r, reach, number)
        own = 2 if double else 1  # in double the reference rounds as much
        bound = bound + own * units * u * reach
    return bound


def _arrays(sample: Any) -> list[Any]:
    found: list[Any] = []
    sample.map(lambda a: found.append(a) or a)
    return found


def _longest(reference: Reference) -> int:
    """Size of the longest dimension of the inputs."""
    return max((n for a in _arrays(reference.sample) for n in a.shape), default=1)


def _length(reference: Reference, r: Any) -> float:
    """Number of products that were summed, from the sizes of the inputs and the result."""
    if "cum" in reference.op.name:  # up to as many as the dimension is long
        return float(max((1, *r.shape)))
    sizes = [a.size for a in _arrays(reference.sample) if a.dtype.kind not in "b"] or [1]
    indexed = {a.dtype.kind in "iu" for a in _arrays(reference.sample)} == {True, False}
    if indexed:  # they may all be added to one element
        return float(max(sizes))
    out = max(r.size, 1)
    by_reduction = max(sizes) / out
    by_product = np.sqrt(np.prod([float(s) for s in sizes[:2]]) / out) if len(sizes) > 1 else 1.0
    return float(max(1.0, by_reduction, by_product))


def _factor(reference: Reference, r: Any) -> Any:
    """Absolute value of the input that the result is a multiple of."""
    found = next(a for a in _arrays(reference.sample) if a.shape == r.shape)
    return np.nan_to_num(np.abs(wide(found)), nan=0.0, posinf=0.0)


def _matching(result: Any, r: Any, number: int) -> Any:
    """The one of several outputs that has the shape of ``r``."""
    found = _shaped(result, r, number)
    return np.full(r.shape, np.nan) if found is None else np.abs(found)


def _magnitude(reference: Reference, r: Any, number: int) -> Any:
    try:
        reach = _matching(reference.magnitude(), r, number)
    except Exception:  # the reference refuses absolute values: bound by the result alone
        reach = np.abs(r)
    terms = reference.terms()
    if terms is not None:
        reach = np.maximum(reach, _matching(terms, r, number))
    # Where the bound itself overflows nothing is asserted.
    reach = np.where(np.isnan(reach), np.abs(r), reach)
    return np.maximum(reach, np.abs(np.where(np.isfinite(r), r, 0.0)))


def _signed_magnitude(reference: Reference, r: Any, reach: Any, number: int) -> Any:
    """``reach``, or what the inputs reach with other signs: an op's factors have signs too."""
    for direction in range(DIRECTIONS):
        with contextlib.suppress(Exception):  # the reference refuses negative values
            signed = _matching(reference.signed(direction), r, number)
            reach = np.maximum(reach, np.where(np.isfinite(signed), signed, 0.0))
    return reach


def _spread(reference: Reference, r: Any, directions: int, number: int, *, double: bool) -> Any:
    spread = np.zeros(r.shape)
    moves = [(direction, 1.0) for direction in range(directions)]
    # In double the reference is as far from the truth as the result may be: the variance of
    # equal numbers is the square of one unit with an unlucky mean, and so is that of numbers
    # moved by one unit each.
    moves += [(2, 2.0), (3, 2.0)] if double else []
    # The mean of n equal numbers may be off by n / 2 units, and all of them by as much from it.
    moves += [(d, _longest(reference) / 8) for d in (2, 3, 4)] if reference.repeats else []
    for direction, units in moves:
        moved = _shaped(reference.perturbed(direction, units), r, number)
        if moved is not None:
            # What one unit turns into NaN or infinity is undetermined: nothing is asserted.
            tipped = (np.isnan(moved) != np.isnan(r)) | (np.isinf(moved) != np.isinf(r))
            spread = np.maximum(spread, np.where(tipped, np.inf, _distance(moved, r)))
    half = directions > DIRECTIONS  # half precision is computed in single
    running = reference.op.name in RUNNING_PRODUCTS and not double
    if half or running:
        share = np.finfo(np.float64).eps / np.finfo(np.float32).eps if double else 1.0
        for direction in range(directions):
            single, exact = (_shaped(run, r, number) for run in reference.single(direction))
            if single is None or exact is None:
                continue
            if half:
                distance = _distance(single, exact) * share
                spread = np.maximum(spread, np.where(np.isinf(distance), 0.0, distance))
            if running:
                spread = np.where(_left_the_range(single, exact), np.inf, spread)
    if running and not np.isfinite(r).all():
        # A partial product that is zero meets an infinity in one order, and in another it does not.
        calm = Reference(reference.op, reference.sample.map(_without_infinities))
        single, exact = (_shaped(run, r, number) for run in calm.single(0))
        if single is not None and exact is not None:
            spread = np.where(_left_the_range(single, exact), np.inf, spread)
    return spread


def _without_infinities(array: Any) -> Any:
    return (
        np.where(np.isinf(array), np.ones_like(array), array) if array.dtype.kind == "f" else array
    )


def _left_the_range(single: Any, exact: Any) -> Any:
    """Where single precision turned a product into zero, infinity or NaN, and double did not."""
    kinds = (np.isnan, np.isinf, lambda x: x == 0)
    return np.any([kind(single) != kind(exact) for kind in kinds], axis=0)


def _shaped(result: Any, r: Any, number: int) -> Any:
    """The output of this number, None where it has not the shape of ``r``."""
    outputs = result if isinstance(result, (tuple, list)) else [result]
    found = outputs[number] if number < len(outputs) else None
    return np.asarray(found) if np.shape(found) == r.shape and found is not None else None


def _distance(a: Any, b: Any) -> Any:
    """Absolute difference, 0 where it is NaN; of complex results that of their moduli."""
    with np.errstate(all="ignore"):
        if np.iscomplexobj(a):
            a, b = np.abs(a), np.abs(b)
        distance = np.abs(a.astype(np.float64) - b)
    return np.where(np.isnan(distance), 0.0, distance)


def _judge(actual: Any, r: Any, bound: Any, *, signs: bool, vague: Any = None) -> float:
    """Compare one real array with the reference; the largest error over its bound."""
    eps, eta, largest, _ = _precision(actual.dtype)
    a = actual.astype(np.float64)
    if vague is None or not vague.any():
        near = _near(a, r, bound, eta, signs)
        if near is not None:
            return near
    skip = ~np.isfinite(bound)
    if vague is not None:
        skip = skip | vague
    nan_wrong = (np.isnan(a) != np.isnan(r)) & ~skip
    if np.any(nan_wrong):
        _fail(nan_wrong, actual, r, "the sets of NaN differ")
    # A reference beyond the dtype's largest number is an infinity of the dtype.
    with np.errstate(all="ignore"):
        limit = largest * (1 + eps / 4)
        over = np.abs(r) + bound >= limit
        must = np.abs(r) - bound > limit
        infinite = np.isinf(a)
        inf_wrong = (infinite & ~over & ~np.isinf(r)) | (~infinite & ~np.isnan(a) & must)
        inf_wrong |= infinite & (np.sign(a) != np.sign(r))
        inf_wrong &= ~skip
    if np.any(inf_wrong):
        _fail(inf_wrong, actual, r, "infinities differ")
    finite = np.isfinite(a) & np.isfinite(r) & ~skip
    if signs:
        zero = finite & (r == 0) & (a == 0)
        wrong = zero & (np.signbit(a) != np.signbit(r))
        if np.any(wrong):
            _fail(wrong, actual, r, "the signs of zeros differ")
    with np.errstate(all="ignore"):
        error = np.abs(np.where(finite, a - r, 0.0))
        error = np.where(error <= eta / 2, 0.0, error)
        ratio = np.where(error == 0, 0.0, error / np.where(bound > 0, bound, eta / 4))
    worst = float(np.max(ratio, initial=0.0))
    if worst > 1.0:
        _fail(ratio > 1.0, actual, r, "beyond the bound", ratio)
    return worst


def _near(a: Any, r: Any, bound: Any, eta: float, signs: bool) -> float | None:
    """What :func:`_judge` says where all is finite and within its bound; None where not."""
    with np.errstate(all="ignore"):
        error = np.abs(a - r)
        # False for NaN; an infinity is within an infinite bound alone.
        if not (error <= bound).all() or np.isinf(error).any():
            return None
        if signs and ((r == 0) & (a == 0) & (np.signbit(a) != np.signbit(r))).any():
            return None
        ratio = np.divide(error, bound, out=np.zeros_like(error), where=error > eta / 2)
    return float(np.max(ratio, initial=0.0))


def _fail(wrong: Any, actual: Any, expected: Any, what: str, ratio: Any = None) -> None:
    wrong = np.asarray(wrong)
    where: Sequence[Any] = np.argwhere(wrong)
    margin = None
    if ratio is not None:
        index = tuple(int(i) for i in np.unravel_index(np.argmax(ratio), np.shape(ratio)))
        margin = float(np.asarray(ratio)[index])
        how = f", {margin:.3g} times"
    else:
        index, how = tuple(int(i) for i in where[0]), ""
    got, want = np.asarray(actual)[index], np.asarray(expected)[index]
    deviation = Deviation(
        f"{what}{how}: {int(wrong.sum())} of {wrong.size} elements; at {list(index)} got {got!s}, "
        f"reference {want!s}"
    )
    deviation.margin = margin
    raise deviation
