"""Normalization over a batch."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn.modules.lazy import LazyModuleMixin, uninitialized
from coredispatch.frontend.nn.modules.normalization import _Affine
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
]

_op = TABLE.operator
_batch_norm = _op("batch_norm")


class _NormBase(_Affine):
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


class _BatchNorm(_NormBase):
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
        tracks = self.training and self.track_running_stats
        if tracks and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (mean is None and var is None)
        if self.training and not tracks:
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
    """Batch norm whose statistics in training are those of all ranks' batches together.

    For inputs ``(N, C, ...)`` on any device; N may differ between ranks. Without a process group,
    or in a group of one rank, it is a batch norm for any number of dimensions.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        options = eps, momentum, affine, track_running_stats, device, dtype
        super().__init__(num_features, *options, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Any) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")

    def forward(self, input: Any) -> Any:
        """The normalized input; in training the running statistics move."""
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        group = self._ranks() if by_batch else None
        if group is None:
            return super().forward(input)
        from coredispatch.frontend.distributed.synchronized_norm import synchronized_batch_norm

        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        tracks = self.training and self.track_running_stats
        if tracks and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        kept = (self.running_mean, self.running_var)
        running = kept if tracks else None
        return synchronized_batch_norm(
            input, running, self.weight, self.bias, momentum, self.eps, group
        )

    def _ranks(self) -> Any:
        """The group that shares statistics; None where there is nobody to share with."""
        import coredispatch

        distributed = coredispatch.distributed
        if self.process_group is None and not distributed.is_initialized():
            return None
        group: Any = self.process_group or distributed.group.WORLD
        return group if group.size() > 1 else None

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """``module`` with every batch norm in it as one of this class, with the same members."""
        result = module
        if isinstance(module, _BatchNorm):
            result = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            for table in ("_parameters", "_buffers"):
                for name, value in getattr(module, table).items():
                    setattr(result, name, value)
            result.training = module.training
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A normalization whose ``num_features`` is the number of channels of its first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = uninitialized(device, dtype)
            if bias:
                self.bias = uninitialized(device, dtype)
        if track_running_stats:
            self.running_mean = uninitialized(device, dtype, buffer=True)
            self.running_var = uninitialized(device, dtype, buffer=True)
            self.num_batches_tracked = _op("zeros")((), dtype="int64", device=device)

    def reset_parameters(self) -> None:
        """Start anew, once there are shapes."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Any) -> None:
        """Take ``num_features`` from ``input``."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        names = ["weight", "bias"] if self.affine else []
        names += ["running_mean", "running_var"] if self.track_running_stats else []
        for name in names:
            if getattr(self, name) is not None:
                getattr(self, name).materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """:class:`BatchNorm1d` that takes ``num_features`` from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """:class:`BatchNorm2d` that takes ``num_features`` from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """:class:`BatchNorm3d` that takes ``num_features`` from its first input."""

    cls_to_become = BatchNorm3d
