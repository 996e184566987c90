"""The Wishart distribution of positive definite matrices."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch._warnings import warn
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.chi2 import Chi2
from coredispatch.frontend.distributions.exp_family import ExponentialFamily
from coredispatch.frontend.distributions.multivariate_normal import MatrixParameter
from coredispatch.frontend.distributions.utils import (
    as_size,
    half_log_determinant,
    is_number,
    standard_normal,
)
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor

__all__ = ["Wishart"]


class Wishart(MatrixParameter, ExponentialFamily):
    """Scatter matrices: the sum of ``x x'`` over ``df`` normal vectors of a given covariance.

    ``df`` is a real number above p - 1 for p x p matrices. Give one of ``covariance_matrix``,
    ``precision_matrix`` and ``scale_tril``.
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    df: Tensor

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """That of ``df`` depends on the size of the matrices."""
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        forms = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [(name, matrix) for name, matrix in forms.items() if matrix is not None]
        if len(given) != 1:
            raise AssertionError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        name, matrix = given[0]
        if matrix.dim() < 2:
            raise ValueError(
                "scale_tril must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        if is_number(df):
            batch_shape = matrix.shape[:-2]
            self.df = cd.tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch_shape = as_size(cd.broadcast_shapes(matrix.shape[:-2], df.shape))
            self.df = df.expand(batch_shape)
        p = matrix.shape[-1]
        if bool((self.df <= p - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {p - 1}.")
        if bool((self.df < p).any()):
            warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim."
            )
        self.__dict__[name] = matrix.expand((*batch_shape, -1, -1))
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        self._set_scale_tril(name, matrix)

    def _matrix_shape(self) -> Size:
        return self._batch_shape + self._event_shape

    def _by_matrix(self, values: Tensor) -> Tensor:
        return values.expand(self._batch_shape).unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self) -> Tensor:
        return self._by_matrix(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """NaN where ``df <= p + 1``."""
        factor = self.df - self.event_shape[-1] - 1
        return self._by_matrix(cd.where(factor <= 0, math.nan, factor)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        matrix = self.covariance_matrix
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._by_matrix(self.df) * (matrix.pow(2) + outer)

    def _bartlett(self, sample_shape: Size) -> Tensor:
        """``L A A' L'`` with chi-squared and normal numbers in the lower triangular ``A``."""
        p = self._event_shape[-1]
        less = cd.arange(p, dtype=self.df.dtype, device=self.df.device)
        freedom = self.df.expand(self._batch_shape).unsqueeze(-1) - less
        diagonal = Chi2(freedom, validate_args=False).rsample(sample_shape).sqrt()
        diagonal = diagonal.clamp(min=cd.finfo(diagonal.dtype).eps)
        normal = standard_normal((*diagonal.shape, p), diagonal)
        factor = self._unbroadcasted_scale_tril @ (normal.tril(-1) + diagonal.diag_embed())
        return factor @ factor.mT

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Tensor:
        """Samples; singular ones are drawn again, up to ``max_try_correction`` (10) times."""
        sample_shape = as_size(sample_shape)
        tries = 10 if max_try_correction is None else max_try_correction
        sample = self._bartlett(sample_shape)
        singular = ~constraints.positive_definite.check(sample)
        if bool(singular.any()):
            warn("Singular sample detected.")
        for _ in range(tries):
            if not bool(singular.any()):
                break
            again = self._bartlett(sample_shape)
            sample = cd.where(singular.unsqueeze(-1).unsqueeze(-1), again, sample)
            singular = ~constraints.positive_definite.check(sample)
        return sample

    def _log_volume(self) -> Tensor:
        """Half the logarithm of the determinant of twice the covariance."""
        p = self._event_shape[-1]
        return p * math.log(2) / 2 + half_log_determinant(self._unbroadcasted_scale_tril)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        p, factor = self._event_shape[-1], self._unbroadcasted_scale_tril
        # the trace of inv(L L') value
        half = cd.linalg.solve_triangular(factor, value, upper=False)
        trace = cd.linalg.solve_triangular(factor.mT, half, upper=True)
        trace = trace.diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            (self.df - p - 1) / 2 * cd.linalg.slogdet(value).logabsdet
            - trace / 2
            - self.df * self._log_volume()
            - cd.mvlgamma(self.df / 2, p=p)
        )

    def entropy(self) -> Tensor:
        p = self._event_shape[-1]
        halves = cd.arange(p, dtype=self.df.dtype, device=self.df.device) / 2
        mvdigamma = cd.digamma((self.df / 2).unsqueeze(-1) - halves).sum(-1)
        return (
            (p + 1) * self._log_volume()
            + cd.mvlgamma(self.df / 2, p=p)
            - (self.df - p - 1) / 2 * mvdigamma
            + self.df * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        p = self._event_shape[-1]
        return (-self.precision_matrix / 2, (self.df - p - 1) / 2)

    def _log_normalizer(self, x: Any, y: Any) -> Tensor:
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        log_volume = p * math.log(2) - cd.linalg.slogdet(-2 * x).logabsdet
        return half * log_volume + cd.mvlgamma(half, p=p)
