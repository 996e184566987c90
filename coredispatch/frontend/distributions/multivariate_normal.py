"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.distribution import Parametric
from coredispatch.frontend.distributions.utils import (
    as_size,
    half_log_determinant,
    lazy_property,
    mahalanobis,
    matrix_vector,
    standard_normal,
)
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor

__all__ = ["MatrixParameter", "MultivariateNormal"]


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of a positive definite matrix, without the inverse."""
    reversed_factor = cd.linalg.cholesky(cd.flip(precision, (-2, -1)))
    inverse = cd.flip(reversed_factor, (-2, -1)).mT
    identity = cd.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return cd.linalg.solve_triangular(inverse, identity.expand(inverse.shape), upper=False)


class MatrixParameter(Parametric):
    """A positive definite matrix, given as itself, as its inverse or as a Cholesky factor."""

    _constants = ("_unbroadcasted_scale_tril",)
    _unbroadcasted_scale_tril: Tensor

    def _matrix_shape(self) -> Size:
        raise NotImplementedError

    def _set_scale_tril(self, name: str, matrix: Tensor) -> None:
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = cd.linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = precision_to_scale_tril(matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular ``L`` of ``covariance_matrix = L L'``."""
        return self._unbroadcasted_scale_tril.expand(self._matrix_shape())

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The matrix."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._matrix_shape())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """Its inverse."""
        return cd.cholesky_inverse(self._unbroadcasted_scale_tril).expand(self._matrix_shape())


class MultivariateNormal(MatrixParameter):
    """The normal distribution of vectors: a mean ``loc`` and one of three forms of the covariance.

    Give a positive definite ``covariance_matrix`` or ``precision_matrix``, or the lower triangular
    ``scale_tril`` with a positive diagonal, which costs least. ``ValueError`` for another number
    of them than one.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    loc: Tensor

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        forms = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [(name, matrix) for name, matrix in forms.items() if matrix is not None]
        if len(given) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        name, matrix = given[0]
        if matrix.dim() < 2:
            what = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(
                f"{what} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch_shape = cd.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.__dict__[name] = matrix.expand((*batch_shape, -1, -1))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(as_size(batch_shape), self.loc.shape[-1:], validate_args=validate_args)
        self._set_scale_tril(name, matrix)

    def _matrix_shape(self) -> Size:
        return self._batch_shape + self._event_shape + self._event_shape

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        squared = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return squared.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + matrix_vector(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        factor = self._unbroadcasted_scale_tril
        squared = mahalanobis(factor, value - self.loc)
        half = -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + squared)
        return half - half_log_determinant(factor)

    def entropy(self) -> Tensor:
        constant = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        entropy = constant + half_log_determinant(self._unbroadcasted_scale_tril)
        return entropy.expand(self._batch_shape)


# Names that libraries over PyTorch import, although they begin with an underscore.
_batch_mahalanobis = mahalanobis
_batch_mv = matrix_vector
_precision_to_scale_tril = precision_to_scale_tril
