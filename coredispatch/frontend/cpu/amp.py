"""The older spelling of :mod:`coredispatch.amp`, for the CPU: deprecated, as in PyTorch."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import amp
from coredispatch.frontend.older_amp_names import warn_older_name
from coredispatch.registry.model.dtypes import bfloat16

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):
    """``amp.autocast("cpu", ...)``, which it asks to be written."""

    def __init__(
        self, enabled: bool = True, dtype: Any = bfloat16, cache_enabled: bool = True
    ) -> None:
        warn_older_name("cpu.amp.autocast", "autocast('cpu', args...)")
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
        warn_older_name("cpu.amp.GradScaler", "GradScaler('cpu', args...)")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
