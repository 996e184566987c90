"""Dropout layers: active in training, the identity in evaluation."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn.module import Module

__all__ = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
]


class _DropoutNd(Module):
    _name = ""
    _spatial = 0  # dimensions after the channels, of which another number has a warning

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Any) -> Any:
        """The input, part of it zeroed and the rest scaled up."""
        if not self.training:
            if self._spatial and input.ndim != self._spatial + 2:
                return getattr(F, self._name)(input, self.p, False)  # which warns of odd shapes
            return input
        return getattr(F, self._name)(input, self.p, True, self.inplace)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zero each element with probability ``p``; scale the rest by ``1 / (1 - p)``."""

    _name = "dropout"


class Dropout1d(_DropoutNd):
    """Zero whole channels of ``(N, C, L)``."""

    _name = "dropout1d"


class Dropout2d(_DropoutNd):
    """Zero whole channels of ``(N, C, H, W)``."""

    _name, _spatial = "dropout2d", 2


class Dropout3d(_DropoutNd):
    """Zero whole channels of ``(N, C, D, H, W)``."""

    _name, _spatial = "dropout3d", 3


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance under SELU. Klambauer et al., 2017."""

    _name = "alpha_dropout"


class FeatureAlphaDropout(_DropoutNd):
    """Alpha dropout of whole channels."""

    _name = "feature_alpha_dropout"
