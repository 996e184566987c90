"""The LKJ distribution of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.beta import Beta
from coredispatch.frontend.distributions.distribution import Parametric
from coredispatch.frontend.distributions.utils import broadcast_all, standard_normal
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor

__all__ = ["LKJCholesky"]


class LKJCholesky(Parametric):
    """Lower Cholesky factors of ``dim`` x ``dim`` correlation matrices.

    The density of a correlation matrix is proportional to its determinant to the power
    ``concentration - 1``: 1 is uniform, more is closer to the identity. Lewandowski, Kurowicka and
    Joe, "Generating random correlation matrices based on vines and extended onion method", 2009.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _batched = {"_beta": 0}
    _constants = ("dim",)
    concentration: Tensor

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        # Row i, from 0, has the squared length of its part beside the diagonal from
        # Beta(i / 2, concentration + (dim - 1 - i) / 2); that of row 0 is not used.
        rows = cd.arange(dim, dtype=self.concentration.dtype, device=self.concentration.device)
        rows = rows.clamp(min=1)
        rest = self.concentration.unsqueeze(-1) + 0.5 * (dim - 1 - rows)
        self._beta = Beta(0.5 * rows, rest)
        super().__init__(self.concentration.size(), Size((dim, dim)), validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By the onion method, of the factor itself."""
        shape = self._extended_shape(sample_shape)
        with cd.no_grad():
            length = self._beta.sample(sample_shape).unsqueeze(-1)
            direction = standard_normal(shape, length).tril(-1)
            norm = direction.square().sum(-1, keepdim=True).sqrt()
            # the first row has no part beside the diagonal
            rows = cd.sqrt(length) * (direction / norm).nan_to_num(nan=0.0)
            tiny = cd.finfo(rows.dtype).tiny
            diagonal = cd.clamp(1 - rows.square().sum(-1), min=tiny).sqrt()
            return rows + cd.diag_embed(diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        # Stan functions reference, "Cholesky LKJ correlation distribution": the probability is
        # proportional to the product of L_ii ** (2 concentration - 2 + dim - i)
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = cd.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        unnormalized = (order * diagonal.log()).sum(-1)
        # the constant on page 1999 of the paper, with mvlgamma's own power of pi put right
        below = self.dim - 1
        alpha = self.concentration + 0.5 * below
        log_pi = 0.5 * below * math.log(math.pi)
        normalizer = log_pi + cd.mvlgamma(alpha - 0.5, below) - cd.lgamma(alpha) * below
        return unnormalized - normalizer
