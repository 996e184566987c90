"""Check 32, ``sums``: long sums keep the digits that blocks, or a tree, keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..context import Context
from ..distributions import limits
from ..exact import good_sum, nearest
from ..subject import numpy_dtype
from . import check
from .exactness import plan, within

#: lengths of sums in single precision, and in half
LONG, SHORT = 2**18 + 3, 5_003


def _summed(context: Context) -> Iterator[tuple[str, Any, Any]]:
    """``(what, numbers, the same in double)``: long vectors that one accumulator drifts on."""
    dtype = numpy_dtype(context.case.dtype)
    n = LONG if dtype.itemsize == 4 else SHORT
    rng = np.random.default_rng(context.case.seed)
    # Sums of halves stay finite.
    for what, values in (
        ("equal numbers", np.full(n, 0.1)),
        ("positive numbers", rng.uniform(0.5, 1.5, n)),
        ("two numbers by turns", np.where(np.arange(n) % 2, 1.1, 0.9)),
    ):
        given = nearest(values, dtype).astype(dtype)
        yield what, given, given.astype(np.float64)


@check(32, plan=plan, variant="sums")
def sums(context: Context) -> None:
    """Long sums keep the digits that blocks, or a tree, keep; halves add up in single precision."""
    name, limit = context.case.op, limits(numpy_dtype(context.case.dtype))
    eps, tiny = float(limit.eps), float(limit.smallest_subnormal)
    for what, given, wide in _summed(context):
        if name == "layer_norm" and what == "equal numbers":
            continue  # what is left of them is rounding
        scale = good_sum(given.size) * 2.0**-24
        with np.errstate(all="ignore"):
            exact, bound = _EXPECTED[name](wide, scale, eps, tiny)
            found = context.subject.array(_CALLS[name](context.op, context.subject.tensor(given)))
        within(context, found, exact, bound, what)
        if name in ALONG:
            _in_columns(context, given, exact, bound, what)
    if context.case.op == "sum":
        _counted(context)
    if context.case.op in ("sum", "mean"):
        for what, given, wide in _summed(context):
            exact = wide.mean() if context.case.op == "mean" else wide.sum()
            scale = good_sum(given.size) * 2.0**-24 * exact
            for where, array, dim in _laid(given):
                found = context.subject.array(context.op(context.subject.tensor(array), dim))
                twice = 2 if len(dim) == 2 and context.case.op == "sum" else 1
                wanted = np.full(found.shape, twice * exact)
                within(context, found, wanted, twice * scale, f"{what} {where}")


def _laid(given: Any) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    """The numbers along one dimension or two of an array: kernels have other loops for each."""
    pair = given, given[::-1]
    yield "in columns", np.ascontiguousarray(np.stack(pair, axis=-1)), (0,)
    yield "in rows", np.stack(pair), (1,)
    yield "between two dimensions", np.stack([np.stack(pair, axis=-1)] * 2), (1,)
    yield "in two dimensions", np.stack(pair)[None], (1, 2)


def _counted(context: Context) -> None:
    """Small integers, whose sums every order keeps: one that is left out shows."""
    dtype = numpy_dtype(context.case.dtype)
    rng = np.random.default_rng(context.case.seed)
    for size in (SHORT, LONG):
        whole = rng.choice((1, 2, 5, -3, -4), size)
        given = whole.astype(dtype)
        found = context.subject.array(context.op(context.subject.tensor(given)))
        wanted = nearest(np.float64(whole.sum()), dtype)
        context.expect(
            float(found) == float(wanted), f"{size} small integers: {found!r}, not {wanted!r}"
        )


#: what is made along one dimension of several, and how the dimension is named
ALONG: dict[str, Any] = {"cumsum": 0, "var": (0,), "std": (0,), "softmax": 0, "logsumexp": (0,)}


def _in_columns(context: Context, given: Any, exact: Any, bound: Any, what: str) -> None:
    """The numbers in two columns, which another loop adds up: one is the other, turned or not."""
    name = context.case.op
    turned = given if name == "cumsum" else given[::-1]
    columns = np.ascontiguousarray(np.stack([given, turned], axis=-1))
    found = context.subject.array(context.op(context.subject.tensor(columns), ALONG[name]))
    for column in range(2):
        back = -1 if name == "softmax" and column else 1
        one = found[..., column]
        one = one[::back] if one.ndim else one
        within(context, one, exact, bound, f"{what} in columns")


#: what an operator gives for long numbers, and how far a good algorithm may be off: from the
#: numbers in double, the error of a good sum, and the dtype's epsilon and smallest number
Expected = Callable[[Any, float, float, float], tuple[Any, Any]]


def _sum(wide: Any, scale: float, eps: float, tiny: float) -> tuple[Any, Any]:
    return wide.sum(), scale * wide.sum()


def _mean(wide: Any, scale: float, eps: float, tiny: float) -> tuple[Any, Any]:
    return wide.mean(), scale * wide.mean()


def _cumsum(wide: Any, scale: float, eps: float, tiny: float) -> tuple[Any, Any]:
    exact = np.cumsum(wide)
    return exact, 2 * scale * exact  # a scan may carry one number from block to block


def _var(wide: Any, scale: float, eps: float, tiny: float) -> tuple[Any, Any]:
    exact = wide.var(ddof=1)
    # The error of a good mean, by which every deviation from it is off.
    return exact, 4 * scale * exact + max(scale, eps) ** 2 * wide.mean() ** 2


def _std(wide: Any, scale: float, eps: float, tiny: float) -> tuple[Any, Any]:
    exact = wide.std(ddof=1)
    return exact, 4 * scale * exact + max(scale, eps) * wide.mean()


def _softmax(wide: Any, scale: float, eps: float, tiny: float) -> tuple[Any, Any]:
    e = np.exp(wide - wide.max())
    exact = e / e.sum()
    # A decomposition rounds the exponentials and their sum to the dtype, each by half a unit.
    return exact, (scale + 2.0**-20 + eps) * exact + tiny


def _logsumexp(wide: Any, scale: float, eps: float, tiny: float) -> tuple[Any, Any]:
    exact = wide.max() + np.log(np.exp(wide - wide.max()).sum())
    return exact, scale + eps  # of the logarithm


def _layer_norm(wide: Any, scale: float, eps: float, tiny: float) -> tuple[Any, Any]:
    spread = np.sqrt(wide.var() + 1e-5)
    exact = (wide - wide.mean()) / spread
    return exact, 16 * scale * (np.abs(exact) + wide.mean() / spread)


def _dot(wide: Any, scale: float, eps: float, tiny: float) -> tuple[Any, Any]:
    # The lanes of a product are as long as the vector over their number.
    return wide @ wide, 16 * scale * (wide @ wide)


_EXPECTED: dict[str, Expected] = {
    "sum": _sum,
    "mean": _mean,
    "cumsum": _cumsum,
    "var": _var,
    "std": _std,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "logsumexp": _logsumexp,
    "dot": _dot,
}
_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda op, x: op(x),
    "mean": lambda op, x: op(x),
    "cumsum": lambda op, x: op(x, 0),
    "var": lambda op, x: op(x),
    "std": lambda op, x: op(x),
    "softmax": lambda op, x: op(x, 0),
    "layer_norm": lambda op, x: op(x, (x.numel(),)),
    "logsumexp": lambda op, x: op(x, (0,)),
    "dot": lambda op, x: op(x, x),
}
