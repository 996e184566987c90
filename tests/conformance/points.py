"""Short binary fractions in the place of random numbers: halves, borders, both ends, and zeros.

Random numbers never lie in the middle between two values, on a border of bins, or at the end of
what an operator takes. These do, and their sums and products are exact, so that the side on which
a kernel puts them is a fact and no matter of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .context import Context
from .covering_array import ConfiguredMake, strided

__all__ = ["Points", "pointed"]

#: the numbers lie an eighth apart
PARTS = 8
#: how near to a whole number the ends of a domain are drawn from it
NEAR = 0.11
#: what operators of probabilities take, and of correlations
DOMAINS = ((-3.0, 3.0), (-1.0, 1.0), (0.0, 1.0))


class Points(ConfiguredMake):
    """A ``make`` whose floating numbers are multiples of an eighth, one in six an end or a zero."""

    def _array(self, dtype: Any, shape: Any, low: Any, high: Any, free: bool) -> Any:
        if dtype.kind not in "fV":
            return super()._array(dtype, shape, low, high, free)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = int(np.prod(shape, dtype=np.int64))
        # A sampler stays clear of the ends of what is defined: 0.05 to 0.95 are probabilities.
        low, high = (float(np.round(n)) if abs(n - np.round(n)) < NEAR else n for n in (low, high))
        first, last = int(np.ceil(low * PARTS)), int(np.floor(high * PARTS))
        values = self.rng.integers(first, max(first, last) + 1, count) / PARTS
        odd = [n for n in (low, high, 0.0, -0.0) if low <= n <= high and n * PARTS % 1 == 0]
        if odd:
            values = np.where(self.rng.random(count) < 1 / 6, self.rng.choice(odd, count), values)
        return strided(values.astype(dtype), shape, self.layout)


def pointed(
    context: Context,
    samples: Callable[..., list[Any]],
    accepts: Callable[[Any], bool],
) -> list[Any]:
    """The samples filled so, each in the widest domain in which the operator takes it."""
    own = context.op.values
    domains = [*DOMAINS, own] if own is not None else DOMAINS[:1]
    drawn = [samples(context, kind=Points, values=domain) for domain in domains]
    found = []
    for several in zip(*drawn, strict=False):
        widest = several[0] if len(several) == 1 else next(filter(accepts, several), None)
        found += [widest] if widest is not None else []
    return found
