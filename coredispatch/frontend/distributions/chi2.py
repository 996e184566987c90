"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.gamma import Gamma
from coredispatch.frontend.distributions.utils import as_size
from coredispatch.frontend.tensor import Tensor

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The chi-squared distribution with ``df`` degrees of freedom: ``Gamma(df / 2, 1 / 2)``."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Chi2, _instance)
        new.concentration = self.concentration.expand(as_size(batch_shape))
        new.rate = self.rate.expand(as_size(batch_shape))
        return super().expand(batch_shape, new)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2
