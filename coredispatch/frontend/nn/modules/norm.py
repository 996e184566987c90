"""Normalization layers."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LocalResponseNorm",
    "RMSNorm",
    "SyncBatchNorm",
]

_op = TABLE.operator


class _Affine(Module):
    """Weight and bias of a shape, both or neither (the bias alone may be left out)."""

    weight: Any
    bias: Any

    def _affine(self, shape: Any, weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        for name, wanted, make in (("weight", weight, "ones"), ("bias", bias, "zeros")):
            if wanted:
                value = _op(make)(shape, device=device, dtype=dtype)
                self.register_parameter(name, Parameter(value))
            else:
                self.register_parameter(name, None)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            self.weight.data.fill_(1)
        if getattr(self, "bias", None) is not None:
            self.bias.data.zero_()


class LayerNorm(_Affine):
    """Standardize over the last dimensions; see ``nn.functional.layer_norm``."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        wanted = elementwise_affine, elementwise_affine and bias
        self._affine(self.normalized_shape, *wanted, device, dtype)

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        return _layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Shape and options."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(_Affine):
    """Divide by the root mean square over the last dimensions; see ``nn.functional.rms_norm``."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        value = _op("ones")(self.normalized_shape, device=device, dtype=dtype)
        self.register_parameter("weight", Parameter(value) if elementwise_affine else None)

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        return _rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Shape and options."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(_Affine):
    """Standardize over groups of channels; see ``nn.functional.group_norm``."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        self._affine((num_channels,), affine, affine and bias, device, dtype)

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        return _group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Sizes and options."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divide by the response of neighbouring channels; see ``nn.functional``."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        return _op("local_response_norm")(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """All options."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class _Tracking(_Affine):
    """Running statistics beside weight and bias."""

    _dims: tuple[int, ...] = ()
    _version = 2
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._affine((num_features,), affine, affine and bias, device, dtype)
        if track_running_stats:
            where = {"device": device, "dtype": dtype}
            self.register_buffer("running_mean", _op("zeros")((num_features,), **where))
            self.register_buffer("running_var", _op("ones")((num_features,), **where))
            count = _op("zeros")((), dtype="int64", device=device)
            self.register_buffer("num_batches_tracked", count)
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *more: Any
    ) -> None:
        """Checkpoints from before batches were counted (version 1) leave the count as it is."""
        count, key = self.num_batches_tracked, prefix + "num_batches_tracked"
        if count is not None and local_metadata.get("version", 1) < 2:
            state_dict.setdefault(key, _op("zeros")((), dtype="int64") if count.is_meta else count)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *more)

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and the running statistics reset."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_dim(self, input: Any) -> None:
        if input.ndim not in self._dims:
            wanted = " or ".join(f"{d}D" for d in self._dims)
            raise ValueError(f"expected {wanted} input (got {input.ndim}D input)")

    def extra_repr(self) -> str:
        """Sizes and options."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Tracking):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Any) -> Any:
        """The normalized input; in training the running statistics move.

        ``momentum=None`` keeps the plain average of all batches.
        """
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        mean, var = self.running_mean, self.running_var
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (mean is None and var is None)
        if self.training and not self.track_running_stats:
            mean = var = None
        return _batch_norm(input, mean, var, self.weight, self.bias, by_batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Standardize each channel of ``(N, C)`` or ``(N, C, L)`` over the batch."""

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Standardize each channel of ``(N, C, H, W)`` over the batch."""

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Standardize each channel of ``(N, C, D, H, W)`` over the batch."""

    _dims = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm for any number of dimensions; statistics are those of this process."""

    def _check_input_dim(self, input: Any) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")


class _InstanceNorm(_Tracking):
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


_layer_norm, _rms_norm, _group_norm = _op("layer_norm"), _op("rms_norm"), _op("group_norm")
_batch_norm, _instance_norm = _op("batch_norm"), _op("instance_norm")
