"""The older spelling of :mod:`coredispatch.amp`, for the CPU: deprecated, as in PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

from coredispatch.frontend import amp
from coredispatch.registry.model.dtypes import bfloat16

__all__ = ["GradScaler", "autocast"]


def _deprecated(name: str) -> None:
    warnings.warn(
        f"`torch.cpu.amp.{name}(args...)` is deprecated. Please use "
        f"`torch.amp.{name}('cpu', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """``amp.autocast("cpu", ...)``, which it asks to be written."""

    def __init__(
        self, enabled: bool = True, dtype: Any = bfloat16, cache_enabled: bool = True
    ) -> None:
        _deprecated("autocast")
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """``amp.GradScaler("cpu", ...)``, which it asks to be written."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _deprecated("GradScaler")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
