"""The covering array: dtype, layout, value distribution and shape, covered pair by pair.

The operator definitions' samplers enumerate shapes and parameters and leave the arrays to ``make``.
:class:`ConfiguredMake` is that object for one combination; :func:`combinations` chooses them so
that every dtype meets every layout and every distribution, every layout meets every distribution,
and every sample meets every dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from coredispatch.plugin import samples as sampling

from .distributions import distributions_for, fill

__all__ = ["LAYOUTS", "ConfiguredMake", "combinations", "shares", "strided"]

LAYOUTS = ("contiguous", "transposed", "step2", "offset", "stride0", "overlapping")
#: those in which one element may stand for several
SHARED = ("stride0", "overlapping")


def combinations(
    dtypes: Sequence[tuple[int, str, np.dtype[Any]]], layouts: Sequence[str] = LAYOUTS
) -> Iterator[tuple[str, str, str, int]]:
    """Combinations ``(dtype, layout, distribution, number)`` that cover all pairs.

    ``dtypes`` are ``(index among all dtypes, name, NumPy dtype)``: the index, not the place in
    this op's own list, decides the pairing, so that cases keep their names when an op gains a
    dtype. ``number`` counts the combinations of a dtype and says which samples it takes.
    """
    seen: set[tuple[str, str]] = set()
    counts: dict[str, int] = {}
    for index, name, dtype in dtypes:
        distributions = distributions_for(dtype)
        for i in range(max(len(distributions), len(layouts))):
            layout, distribution = (
                layouts[(i + index) % len(layouts)],
                distributions[i % len(distributions)],
            )
            seen.add((layout, distribution))
            counts[name] = counts.get(name, -1) + 1
            yield name, layout, distribution, counts[name] + index
    for layout in layouts:
        for distribution in dict.fromkeys(p for _, _, d in dtypes for p in distributions_for(d)):
            if (layout, distribution) in seen:
                continue
            # The first dtype of the op's domain that knows the distribution takes the pair.
            index, name, _ = next(d for d in dtypes if distribution in distributions_for(d[2]))
            counts[name] += 1
            yield name, layout, distribution, counts[name] + index


def strided(values: np.ndarray[Any, Any], shape: tuple[int, ...], layout: str) -> Any:
    """An array of ``shape`` in ``layout`` whose buffer holds as many of ``values`` as it needs.

    The result is a strided window into a flat buffer (its ``base``), writable in every layout.
    ``values`` must hold at least ``prod(shape)`` numbers.
    """
    count = int(np.prod(shape, dtype=np.int64))
    item = values.dtype.itemsize
    ndim = len(shape)
    if ndim == 0 or count == 0 or layout == "contiguous":
        if layout == "offset" and count:
            buffer = np.concatenate([values[:1], values[:count]])
            return np.ndarray(shape, values.dtype, buffer, item)
        return values[:count].reshape(shape).copy()
    if layout == "transposed":
        return values[:count].copy().reshape(shape[::-1]).transpose()
    if layout == "step2":
        buffer = np.repeat(values[:count], 2)
        buffer[1::2] = buffer[::-1][::2]  # what a kernel must not read
        strides = np.cumprod((1, *shape[:0:-1]))[::-1] * 2 * item
        return np.ndarray(shape, values.dtype, buffer, 0, tuple(int(s) for s in strides))
    if layout == "offset":
        buffer = np.concatenate([values[:3][::-1], values[:count]])
        return np.ndarray(shape, values.dtype, buffer, (len(buffer) - count) * item)
    if layout == "rows":  # of a wider array: elements beside each other, gaps between the rows
        buffer = np.resize(values[:count][::-1], math.prod(shape[:-1]) * (shape[-1] + 3))
        strides = (*np.cumprod((shape[-1] + 3, *shape[-2:0:-1]))[::-1][: ndim - 1] * item, item)
        found = np.ndarray(shape, values.dtype, buffer, item, tuple(int(s) for s in strides))
        found[...] = values[:count].reshape(shape)
        return found
    if layout == "stride0":
        free = int(np.argmax(shape))  # the longest dimension repeats
        rest = [1 if i == free else n for i, n in enumerate(shape)]
        buffer = values[: int(np.prod(rest))].copy()
        strides = [0 if i == free else s for i, s in enumerate(buffer.reshape(rest).strides)]
        return np.ndarray(shape, values.dtype, buffer, 0, tuple(strides))
    assert layout == "overlapping", layout
    length = sum(n - 1 for n in shape) + 1
    return np.ndarray(shape, values.dtype, values[:length].copy(), 0, (item,) * ndim)


def shares(array: Any) -> bool:
    """Whether elements of an array lie in one place, as in the last two layouts."""
    steps = [abs(s) // array.itemsize for n, s in zip(array.shape, array.strides) if n > 1]
    reach = sum((n - 1) * abs(s) for n, s in zip(array.shape, array.strides)) // array.itemsize
    return array.size > 1 and (0 in steps or reach + 1 < array.size)


class ConfiguredMake:
    """Fills sample arrays with the values and the layout of one combination.

    Has what samplers ask of a ``make``: ``make(shape, low=, high=)``, ``float``, ``positive``,
    ``index``, ``distinct``, ``mask``, ``dtype`` and ``size``.

    Args:
        dtype: NumPy dtype of the arrays.
        layout, distribution: names of :data:`LAYOUTS` and ``distributions.DISTRIBUTIONS``.
        seed: seed of the values.
        values: the op's value domain, ``(-2, 2)`` by default.
        moderate: keep extremes small enough for sums of products.
        anywhere: whether values outside the domain are allowed at all.
    """

    def __init__(
        self,
        dtype: Any,
        layout: str = "contiguous",
        distribution: str = "uniform",
        seed: int = 0,
        values: tuple[float, float] | None = None,
        *,
        moderate: bool = False,
        anywhere: bool = True,
        size: int = 1,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.layout = layout
        self.distribution = distribution
        self.low, self.high = values or (-2.0, 2.0)
        self.moderate = moderate
        self.anywhere = (
            anywhere and values is None or distribution in ("special", "integer_extremes")
        )
        self.size = size
        self.rng = np.random.default_rng(seed)

    def _array(self, dtype: Any, shape: Any, low: Any, high: Any, free: bool) -> Any:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = int(np.prod(shape, dtype=np.int64))
        values = fill(
            self.distribution if self.distribution in distributions_for(dtype) else "uniform",
            dtype,
            count,
            self.rng,
            low,
            high,
            free=free,
            moderate=self.moderate,
        )
        return strided(values, shape, self.layout)

    def __call__(self, shape: Any, *, low: float | None = None, high: float | None = None) -> Any:
        """Array of the combination's dtype; ``low`` and ``high`` narrow the value domain."""
        free = self.anywhere and low is None and high is None
        low = self.low if low is None else low
        high = self.high if high is None else high
        return self._array(self.dtype, shape, low, high, free)

    def float(self, shape: Any) -> Any:
        """Floating values whatever the combination: its dtype when floating, else float64."""
        dtype = self.dtype if self.dtype.kind not in "biuc" else np.dtype(np.float64)
        return self._array(dtype, shape, self.low, self.high, False)

    def positive(self, shape: Any) -> Any:
        """Values of the combination's dtype that are above zero."""
        if self.dtype.kind == "b":
            return np.ones(shape, np.bool_)
        if self.dtype.kind in "iu":
            values = np.asarray(self.rng.integers(1, 5, shape)).astype(self.dtype)
            return strided(values.reshape(-1), values.shape, self.layout)
        return self._array(self.dtype, shape, 0.25, 2.0, False)

    def index(self, shape: Any, high: int) -> Any:
        """int64 indices in ``[0, high)``."""
        values = np.asarray(self.rng.integers(0, high, shape), dtype=np.int64)
        return strided(values.reshape(-1), values.shape, self.layout)

    def distinct(self, shape: Any, high: int, dim: int = -1) -> Any:
        """int64 indices in ``[0, high)``, no two alike along ``dim``, in memory of their own."""
        values = sampling.distinct(self.rng, shape, high, dim)
        layout = "transposed" if self.layout in SHARED else self.layout
        found = strided(values.reshape(-1), values.shape, layout)
        found[...] = values  # each in its own place, however they lie
        return found

    def mask(self, shape: Any) -> Any:
        """Random booleans, the first of them true: a mask that selects nothing shows nothing."""
        values = np.asarray(self.rng.random(shape) < 0.5)
        values.reshape(-1)[:1] = True
        return strided(values.reshape(-1), values.shape, self.layout)


#: a sampler of an operator definition
Sampler = Callable[[Any], Iterator[Any]]
