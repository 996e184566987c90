"""Tolerance classes: how far from the float64 reference a result of an op may be.

An operator definition names one; the conformance suite turns it into a bound for each dtype. ``u``
is the unit roundoff of the result's dtype, ``r`` the reference, ``eta`` the smallest subnormal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Tolerance",
    "conditioned",
    "dot",
    "exact",
    "recurrence",
    "steps",
    "transform",
    "ulp",
]


@dataclass(frozen=True)
class Tolerance:
    """A class of bounds.

    Attributes:
        kind: ``"exact"`` no difference; ``"ulp"`` at most ``ulps`` units in the last place;
            ``"dot"`` the bound of a length-k sum of products,
            ``(8 + 3*sqrt(k)) * u * f(|inputs|) + u*|r| + k*eta``; ``"conditioned"`` the spread
            of the reference when the inputs move by one unit in the last place, plus ``ulps``;
            ``"steps"`` that many of the steps between the values that the result's layout can hold
            (:attr:`coredispatch.plugin.Layout.step`).
        ulps: the number of units, 0 where the kind has none.
        linear: of ``dot``, the names of the parameters whose absolute values make ``|inputs|``;
            empty for all. The others only decide which products are summed.
        product: of ``ulp``, whether the result is the input times a factor that may underflow
            before the result does: one subnormal unit of the factor is allowed too.
        mixed: whether every result adds up many inputs in an order of the library's own, as a fast
            transform does: what is not finite may be an infinity or NaN.
        repeated: whether each step takes what the one before gave, as a recurrence does: a
            difference in the last digit may grow with each, until the results are chance.
        determined: where the results themselves are not determined, as the signs of singular
            vectors, a function of them, as NumPy arrays of double precision, that gives what is;
            it is judged in their place.
    """

    kind: str
    ulps: float = 0.0
    linear: tuple[str, ...] = ()
    product: bool = False
    mixed: bool = False
    repeated: bool = False
    determined: Callable[..., tuple[Any, ...]] | None = None

    def __repr__(self) -> str:
        return f"{self.kind}({self.ulps:g})" if self.ulps else self.kind


exact = Tolerance("exact")
dot = Tolerance("dot")
conditioned = Tolerance("conditioned", 4.0)
transform = Tolerance("conditioned", 4.0, mixed=True)
recurrence = Tolerance("conditioned", 4.0, repeated=True)


def steps(n: float) -> Tolerance:
    """At most ``n`` steps of a layout that holds some values only, such as ``quantized``."""
    return Tolerance("steps", float(n))


def ulp(n: float, *, product: bool = False) -> Tolerance:
    """At most ``n`` units in the last place of the result's dtype; see :class:`Tolerance`."""
    return Tolerance("ulp", float(n), product=product)
