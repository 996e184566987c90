"""Padding layers."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.utils import _ntuple

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """Pads the last ``_n`` dimensions in ``_mode``."""

    _n = 0
    _mode = "constant"

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._n)(padding)

    def forward(self, input: Any) -> Any:
        """The padded input."""
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        """The amounts, last dimension first."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Any) -> Any:
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The amounts, last dimension first, and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Borders of ``value`` along the last dimension."""

    _n = 1


class ConstantPad2d(_ConstantPad):
    """Borders of ``value`` along the last two dimensions."""

    _n = 2


class ConstantPad3d(_ConstantPad):
    """Borders of ``value`` along the last three dimensions."""

    _n = 3


class ZeroPad1d(_Pad):
    """Borders of zeros along the last dimension."""

    _n = 1


class ZeroPad2d(_Pad):
    """Borders of zeros along the last two dimensions."""

    _n = 2


class ZeroPad3d(_Pad):
    """Borders of zeros along the last three dimensions."""

    _n = 3


class ReflectionPad1d(_Pad):
    """Borders mirrored at the last dimension's edges."""

    _n, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Borders mirrored at the last two dimensions' edges."""

    _n, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Borders mirrored at the last three dimensions' edges."""

    _n, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Borders that repeat the last dimension's edges."""

    _n, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Borders that repeat the last two dimensions' edges."""

    _n, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Borders that repeat the last three dimensions' edges."""

    _n, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Borders that continue from the other end of the last dimension."""

    _n, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """Borders that continue from the other end of the last two dimensions."""

    _n, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """Borders that continue from the other end of the last three dimensions."""

    _n, _mode = 3, "circular"
