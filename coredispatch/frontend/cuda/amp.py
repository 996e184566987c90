"""The older spellings of :mod:`coredispatch.amp`, for CUDA: deprecated, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend import amp
from coredispatch.frontend.cuda.devices import is_available
from coredispatch.frontend.older_amp_names import warn_older_name
from coredispatch.registry.model.dtypes import float16

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def amp_definitely_not_available() -> bool:
    """Whether there is no CUDA device."""
    return not is_available()


class autocast(amp.autocast):
    """``amp.autocast("cuda", ...)``; without a device it warns and changes nothing."""

    def __init__(
        self, enabled: bool = True, dtype: Any = float16, cache_enabled: bool = True
    ) -> None:
        warn_older_name("cuda.amp.autocast", "autocast('cuda', args...)")
        if enabled and not is_available():
            warn("CUDA is not available or torch_xla is imported. Disabling autocast.")
            enabled = False
        where = "cuda" if amp.is_autocast_available("cuda") else "cpu"
        super().__init__(where, dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """``amp.GradScaler("cuda", ...)``; without a device it warns and is disabled."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        warn_older_name("cuda.amp.GradScaler", "GradScaler('cuda', args...)")
        if enabled and not is_available():
            warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.")
            enabled = False
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: Any = None
) -> Callable[..., Any]:
    """``amp.custom_fwd(..., device_type="cuda")``, which it asks to be written."""
    warn_older_name("cuda.amp.custom_fwd", "custom_fwd(args..., device_type='cuda')")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """``amp.custom_bwd(..., device_type="cuda")``, which it asks to be written."""
    warn_older_name("cuda.amp.custom_bwd", "custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")
