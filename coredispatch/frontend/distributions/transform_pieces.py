"""Transforms of the pieces of a tensor, and by a distribution function."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.distribution import Distribution
from coredispatch.frontend.distributions.transform_base import Transform
from coredispatch.frontend.distributions.utils import lazy_property, sum_rightmost

__all__ = ["CatTransform", "CumulativeDistributionTransform", "StackTransform"]


class _SideBySide(Transform):
    """Transforms of the pieces of a tensor along ``dim``."""

    transforms: list[Transform]
    dim: int

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        if cache_size:
            tseq = [t.with_cache(cache_size) for t in tseq]
        super().__init__(cache_size=cache_size)
        self.transforms = list(tseq)
        self.dim = dim

    def _pieces(self, x: Any) -> Any:
        raise NotImplementedError

    def _joined(self, pieces: list[Any]) -> Any:
        raise NotImplementedError

    def _require(self, x: Any, length: int) -> None:
        if not -x.dim() <= self.dim < x.dim():
            raise AssertionError(
                f"dim {self.dim} out of range for tensor with {x.dim()} dimensions"
            )
        if x.size(self.dim) != length:
            raise AssertionError(f"size({self.dim}) = {x.size(self.dim)} must equal {length}")

    def _call(self, x: Any) -> Any:
        return self._joined([t(piece) for piece, t in zip(self._pieces(x), self.transforms)])

    def _inverse(self, y: Any) -> Any:
        return self._joined([t.inv(piece) for piece, t in zip(self._pieces(y), self.transforms)])

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)


class CatTransform(_SideBySide):
    """Transforms of pieces of the given ``lengths``, put together as :func:`cat` does."""

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})"
            )

    @lazy_property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> int:
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _pieces(self, x: Any) -> Any:
        self._require(x, self.length)
        return x.split(self.lengths, self.dim)

    def _joined(self, pieces: list[Any]) -> Any:
        return cd.cat(pieces, dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        terms = []
        for transform, before, after in zip(self.transforms, self._pieces(x), self._pieces(y)):
            term = transform.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(term, self.event_dim - transform.event_dim))
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return cd.cat(terms, dim=dim) if dim < 0 else functools.reduce(operator.add, terms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_SideBySide):
    """Transforms of the slices along ``dim``, put together as :func:`stack` does."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return StackTransform(self.transforms, self.dim, cache_size)

    def _pieces(self, x: Any) -> Any:
        self._require(x, len(self.transforms))
        return x.unbind(self.dim)

    def _joined(self, pieces: list[Any]) -> Any:
        return cd.stack(pieces, dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        pieces = zip(self.transforms, self._pieces(x), self._pieces(y))
        return self._joined([t.log_abs_det_jacobian(before, after) for t, before, after in pieces])

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)


class CumulativeDistributionTransform(Transform):
    """``y = distribution.cdf(x)``: for copulas."""

    bijective = True
    codomain = constraints.unit_interval
    sign = +1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CumulativeDistributionTransform(self.distribution, cache_size=cache_size)
