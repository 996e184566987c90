"""The multivariate normal distribution with a low-rank covariance."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.distribution import Parametric
from coredispatch.frontend.distributions.utils import (
    half_log_determinant,
    lazy_property,
    mahalanobis,
    matrix_vector,
    standard_normal,
)
from coredispatch.frontend.tensor import Tensor

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Parametric):
    """The normal distribution of vectors with the covariance ``W W' + diag(D)``.

    ``W``, ``cov_factor``, is ``(..., n, m)`` with a small ``m``; ``D``, ``cov_diag``, ``(..., n)``.
    By the Woodbury identity and the determinant lemma, all is done with the m x m capacitance
    matrix ``I + W' inv(D) W``.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _constants = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")
    loc: Tensor
    cov_factor: Tensor
    cov_diag: Tensor

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, "
                "with optional leading batch dimensions"
            )
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(
                f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m"
            )
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            columns, self.cov_factor, diagonal = cd.broadcast_tensors(
                loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1)
            )
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc, self.cov_diag = columns[..., 0], diagonal[..., 0]
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        m = cov_factor.size(-1)
        identity = cd.eye(m, dtype=cov_factor.dtype, device=cov_factor.device)
        weighted = cov_factor.mT / cov_diag.unsqueeze(-2)
        self._capacitance_tril = cd.linalg.cholesky(identity + weighted @ cov_factor)
        super().__init__(self.loc.shape[:-1], event_shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        squared = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return squared.expand(self._batch_shape + self._event_shape)

    def _matrices(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        # D^1/2 chol(I + D^-1/2 W W' D^-1/2): the eigenvalues of what is factored are 1 or more
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        identity = cd.eye(self._event_shape[0], dtype=scaled.dtype, device=scaled.device)
        return self._matrices(root * cd.linalg.cholesky(identity + scaled @ scaled.mT))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """``W W' + diag(D)``."""
        factor = self._unbroadcasted_cov_factor
        return self._matrices(factor @ factor.mT + cd.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        weighted = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        solved = cd.linalg.solve_triangular(self._capacitance_tril, weighted, upper=False)
        inverse = cd.diag_embed(self._unbroadcasted_cov_diag.reciprocal())
        return self._matrices(inverse - solved.mT @ solved)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        factors = standard_normal(shape[:-1] + self.cov_factor.shape[-1:], self.loc)
        noise = self._unbroadcasted_cov_diag.sqrt() * standard_normal(shape, self.loc)
        return self.loc + matrix_vector(self._unbroadcasted_cov_factor, factors) + noise

    def _mahalanobis(self, x: Tensor) -> Tensor:
        diagonal = self._unbroadcasted_cov_diag
        weighted = self._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
        inner = mahalanobis(self._capacitance_tril, matrix_vector(weighted, x))
        return (x.pow(2) / diagonal).sum(-1) - inner

    def _log_determinant(self) -> Tensor:
        diagonal = self._unbroadcasted_cov_diag
        return 2 * half_log_determinant(self._capacitance_tril) + diagonal.log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        squared = self._mahalanobis(value - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + self._log_determinant() + squared)

    def entropy(self) -> Tensor:
        constant = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (0.5 * (constant + self._log_determinant())).expand(self._batch_shape)
