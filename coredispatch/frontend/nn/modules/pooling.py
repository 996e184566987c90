"""Pooling layers."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn.module import Module
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
    "LPPool2d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]


class _MaxPool(Module):
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


class MaxPool1d(_MaxPool):
    """Maxima of windows of ``(N, C, L)``; see ``nn.functional.max_pool1d``."""

    _n = 1


class MaxPool2d(_MaxPool):
    """Maxima of windows of ``(N, C, H, W)``; see ``nn.functional.max_pool2d``."""

    _n = 2


class MaxPool3d(_MaxPool):
    """Maxima of windows of ``(N, C, D, H, W)``; see ``nn.functional.max_pool3d``."""

    _n = 3


class AvgPool1d(Module):
    """Averages of windows of ``(N, C, L)``; see ``nn.functional.avg_pool1d``."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
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


class LPPool2d(Module):
    """``(sum x^p)^(1/p)`` of windows of ``(N, C, H, W)``."""

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, input: Any) -> Any:
        """The norms."""
        return F.lp_pool2d(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self) -> str:
        """All options."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, ceil_mode={self.ceil_mode}"
        )


class _Adaptive(Module):
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


class AdaptiveAvgPool1d(_Adaptive):
    """Averages over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_avg_pool1d"))


class AdaptiveAvgPool2d(_Adaptive):
    """Averages over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_avg_pool2d"))


class AdaptiveAvgPool3d(_Adaptive):
    """Averages over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_avg_pool3d"))


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Any) -> Any:
        """The maxima, and with ``return_indices`` their positions."""
        return self._op(input, self.output_size, return_indices=self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """Maxima over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_max_pool1d"))


class AdaptiveMaxPool2d(_AdaptiveMax):
    """Maxima over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_max_pool2d"))


class AdaptiveMaxPool3d(_AdaptiveMax):
    """Maxima over windows that give ``output_size``; see ``nn.functional``."""

    _op = staticmethod(TABLE.operator("adaptive_max_pool3d"))
