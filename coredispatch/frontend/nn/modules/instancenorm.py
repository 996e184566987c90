"""Normalization over the positions of one sample."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn.modules.batchnorm import _LazyNormBase, _NormBase
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]

_instance_norm = TABLE.operator("instance_norm")


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Any) -> Any:
        """The normalized input, with or without a batch dimension."""
        self._check_input_dim(input)
        unbatched = input.ndim == self._dims[0]
        x = input.unsqueeze(0) if unbatched else input
        own = self.training or not self.track_running_stats
        result = _instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            own,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return result.squeeze(0) if unbatched else result


class InstanceNorm1d(_InstanceNorm):
    """Standardize each channel of each sample of ``(N, C, L)``."""

    _dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Standardize each channel of each sample of ``(N, C, H, W)``."""

    _dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Standardize each channel of each sample of ``(N, C, D, H, W)``."""

    _dims = (4, 5)


class _LazyInstanceNorm(_LazyNormBase):
    """Instance norms are not affine and track nothing unless they are told to."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        options = eps, momentum, affine, track_running_stats, device, dtype
        super().__init__(*options, bias=bias)

    def initialize_parameters(self, input: Any) -> None:
        """Take ``num_features`` from ``input``, with or without a batch."""
        self._check_input_dim(input)
        super().initialize_parameters(input if input.ndim == self._dims[1] else input.unsqueeze(0))


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """:class:`InstanceNorm1d` that takes ``num_features`` from its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """:class:`InstanceNorm2d` that takes ``num_features`` from its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """:class:`InstanceNorm3d` that takes ``num_features`` from its first input."""

    cls_to_become = InstanceNorm3d
