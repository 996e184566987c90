"""Pooling layers."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.utils import _ntuple, _single
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]


class _MaxPoolNd(Module):
    _n = 0

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode
        name = f"max_pool{self._n}d" + ("_with_indices" if return_indices else "")
        self.__dict__["_op"] = TABLE.operator(name)

    def forward(self, input: Any) -> Any:
        """The maxima, and with ``return_indices`` their positions."""
        return self._op(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )

    def extra_repr(self) -> str:
        """All options."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """Maxima of windows of ``(N, C, L)``; see ``nn.functional.max_pool1d``."""

    _n = 1


class MaxPool2d(_MaxPoolNd):
    """Maxima of windows of ``(N, C, H, W)``; see ``nn.functional.max_pool2d``."""

    _n = 2


class MaxPool3d(_MaxPoolNd):
    """Maxima of windows of ``(N, C, D, H, W)``; see ``nn.functional.max_pool3d``."""

    _n = 3


class _AvgPoolNd(Module):
    """What the averages share."""


class AvgPool1d(_AvgPoolNd):
    """Averages of windows of ``(N, C, L)``; see ``nn.functional.avg_pool1d``."""

    _n = 1

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        if self._n == 1:  # PyTorch keeps these as tuples for one dimension only
            kernel_size, padding = _single(kernel_size), _single(padding)
            stride = None if stride is None else _single(stride)
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Any) -> Any:
        """The averages."""
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )

    def extra_repr(self) -> str:
        """Sizes."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(AvgPool1d):
    """Averages of windows of ``(N, C, H, W)``; see ``nn.functional.avg_pool2d``."""

    _n = 2

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Any) -> Any:
        """The averages."""
        return getattr(F, f"avg_pool{self._n}d")(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(AvgPool2d):
    """Averages of windows of ``(N, C, D, H, W)``; see ``nn.functional.avg_pool3d``."""

    _n = 3


class _LPPoolNd(Module):
    _n = 0

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, input: Any) -> Any:
        """The norms."""
        pool = getattr(F, f"lp_pool{self._n}d")
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        """All options."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """``(sum x^p)^(1/p)`` of windows of ``(N, C, L)``."""

    _n = 1


class LPPool2d(_LPPoolNd):
    """``(sum x^p)^(1/p)`` of windows of ``(N, C, H, W)``."""

    _n = 2


class LPPool3d(_LPPoolNd):
    """``(sum x^p)^(1/p)`` of windows of ``(N, C, D, H, W)``."""

    _n = 3


class _MaxUnpoolNd(Module):
    _n = 0

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = _ntuple(self._n)(kernel_size)
        self.stride = _ntuple(self._n)(kernel_size if stride is None else stride)
        self.padding = _ntuple(self._n)(padding)

    def forward(self, input: Any, indices: Any, output_size: Any = None) -> Any:
        """The input at the positions ``indices``, among zeros."""
        sizes = self.kernel_size, self.stride, self.padding
        return getattr(F, f"max_unpool{self._n}d")(input, indices, *sizes, output_size)

    def extra_repr(self) -> str:
        """All options."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Undoes :class:`MaxPool1d`, but for the elements that it left out."""

    _n = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """Undoes :class:`MaxPool2d`, but for the elements that it left out."""

    _n = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """Undoes :class:`MaxPool3d`, but for the elements that it left out."""

    _n = 3


class _FractionalMaxPoolNd(Module):
    _n = 0

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        n, name = self._n, type(self).__name__
        if (isinstance(kernel_size, int) and kernel_size <= 0) or (
            isinstance(kernel_size, (tuple, list)) and not all(k > 0 for k in kernel_size)
        ):
            raise ValueError(f"kernel_size must be greater than zero, but got {kernel_size}")
        self.kernel_size = _ntuple(n)(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else _ntuple(n)(output_size)
        self.output_ratio = None if output_ratio is None else _ntuple(n)(output_ratio)
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{name} requires specifying either an output size, or a pooling ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Any) -> Any:
        """The maxima, and with ``return_indices`` their positions."""
        return getattr(F, f"fractional_max_pool{self._n}d")(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima of windows at random places of ``(N, C, H, W)``. Graham, 2014."""

    _n = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Maxima of windows at random places of ``(N, C, D, H, W)``. Graham, 2014."""

    _n = 3


class _AdaptiveAvgPoolNd(Module):
    _op: Any = None

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Any) -> Any:
        """The averages."""
        return self._op(input, self.output_size)

    def extra_repr(self) -> str:
        """The output size."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Averages over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_avg_pool1d"))


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Averages over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_avg_pool2d"))


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Averages over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_avg_pool3d"))


class _AdaptiveMaxPoolNd(_AdaptiveAvgPoolNd):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Any) -> Any:
        """The maxima, and with ``return_indices`` their positions."""
        return self._op(input, self.output_size, return_indices=self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_max_pool1d"))


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_max_pool2d"))


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_max_pool3d"))
