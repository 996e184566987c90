"""Autocast set for a thread or task, and older spellings of the questions about it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.amp.autocast import (
    CACHING,
    NESTING,
    autocast,
    get_autocast_dtype,
    is_autocast_enabled,
)
from coredispatch.plugin import DType, Switch, backends

__all__: list[str] = []

_DEVICES = {"gpu": "cuda", "cpu": "cpu"}


def _older(device: str, name: str, result: type) -> Callable[[], Any]:
    """A question of one device, which PyTorch asks :func:`is_autocast_enabled` and the like now."""
    asked = "is_autocast_enabled" if result is bool else "get_autocast_dtype"

    def function() -> Any:
        warnings.warn(
            f"torch.{name}() is deprecated. Please use torch.{asked}('{device}') instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        if result is DType:
            return get_autocast_dtype(device)
        return is_autocast_enabled(device)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{asked}({device!r})``."
    return function


get_autocast_gpu_dtype = _older("cuda", "get_autocast_gpu_dtype", DType)
get_autocast_cpu_dtype = _older("cpu", "get_autocast_cpu_dtype", DType)
get_autocast_xla_dtype = _older("xla", "get_autocast_xla_dtype", DType)
is_autocast_cpu_enabled = _older("cpu", "is_autocast_cpu_enabled", bool)
is_autocast_xla_enabled = _older("xla", "is_autocast_xla_enabled", bool)
is_autocast_ipu_enabled = _older("ipu", "is_autocast_ipu_enabled", bool)


get_autocast_ipu_dtype = _older("ipu", "get_autocast_ipu_dtype", DType)


def is_autocast_cache_enabled() -> bool:
    """Whether weights that autocast converted are kept until the block ends."""
    states = [autocast.current(device) for device in _DEVICES.values()]
    state = next((state for state in states if state is not None and state.enabled), None)
    return CACHING.get() if state is None else state.cache is not None


def clear_autocast_cache() -> None:
    """Forget the weights that the blocks in force converted."""
    for device in _DEVICES.values():
        state = autocast.current(device)
        if state is not None and state.cache is not None:
            state.cache.clear()


def autocast_increment_nesting() -> int:
    """Count a block that a program enters by itself; returns how many there are."""
    NESTING.set(NESTING.get() + 1)
    return NESTING.get()


def autocast_decrement_nesting() -> int:
    """Count a block that a program leaves by itself; returns how many there are."""
    NESTING.set(NESTING.get() - 1)
    return NESTING.get()


class _Setting(autocast):
    """What autocast does to one device from here on, in this thread or task: never left."""

    def __init__(self, device: str, dtype: DType, enabled: bool) -> None:
        self.device = self.part = device
        self.fast_dtype, self._enabled, self._cache_enabled = dtype, enabled, CACHING.get()

    def switches(self) -> Switch:
        """The layer is on as long as it is for any device."""
        others = (autocast.current(name) for name in backends() if name != self.device)
        on = self._enabled or any(state is not None and state.enabled for state in others)
        return Switch(on="autocast") if on else Switch(released="autocast")


def _typed(name: str, what: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        shown = "torch.dtype" if kind is DType else kind.__name__
        raise TypeError(
            f"{name}(): argument '{what}' must be {shown}, not {type(value).__name__}\n"
            f"  fix: torch.{name}('cpu', ...)"
        )
    return value


def set_autocast_enabled(*args: Any, **kwargs: Any) -> None:
    """``set_autocast_enabled(device_type, enabled)``: autocast of this thread or task, on or off.

    Without a device type it is that of CUDA. A block around restores what was before when it ends.
    Raises ``TypeError`` for other types.

    >>> cd.set_autocast_enabled("cpu", True)
    >>> (cd.ones(2, 2) @ cd.ones(2, 2)).dtype
    cd.bfloat16
    >>> cd.set_autocast_enabled("cpu", False)
    """
    names = ("device_type", "enabled") if len(args) + len(kwargs) > 1 else ("enabled",)
    given = dict(zip(names, args)) | kwargs
    if len(args) > 2 or set(given) != set(names):
        raise TypeError("set_autocast_enabled() takes device_type and enabled, or enabled alone")
    device = _typed("set_autocast_enabled", "device_type", given.get("device_type", "cuda"), str)
    enabled = _typed("set_autocast_enabled", "enabled", given["enabled"], bool)
    _Setting(device, get_autocast_dtype(device), enabled).push()


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """The dtype that autocast lowers to from here on, in this thread or task.

    A block around restores what was before when it ends. Raises ``TypeError`` for other types.
    """
    device = _typed("set_autocast_dtype", "device_type", device_type, str)
    dtype = _typed("set_autocast_dtype", "dtype", dtype, DType)
    state = autocast.current(device)
    _Setting(device, dtype, state is not None and bool(state.enabled)).push()


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether blocks that do not say it keep the weights that they convert."""
    CACHING.set(_typed("set_autocast_cache_enabled", "enabled", enabled, bool))


def _older_setter(device: str, name: str, setter: Callable[[str, Any], None]) -> Callable[..., Any]:
    """A setting of one device, for which PyTorch has ``setter`` now."""
    what = "enabled" if setter is set_autocast_enabled else "dtype"

    def function(value: Any) -> None:
        warnings.warn(
            f"torch.{name}({what}) is deprecated. Please use torch.{setter.__name__}('{device}', "
            f"{what}) instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        setter(device, value)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{setter.__name__}({device!r}, {what})``."
    return function


set_autocast_cpu_enabled = _older_setter("cpu", "set_autocast_cpu_enabled", set_autocast_enabled)
set_autocast_ipu_enabled = _older_setter("ipu", "set_autocast_ipu_enabled", set_autocast_enabled)
set_autocast_xla_enabled = _older_setter("xla", "set_autocast_xla_enabled", set_autocast_enabled)
set_autocast_cpu_dtype = _older_setter("cpu", "set_autocast_cpu_dtype", set_autocast_dtype)
set_autocast_gpu_dtype = _older_setter("cuda", "set_autocast_gpu_dtype", set_autocast_dtype)
set_autocast_ipu_dtype = _older_setter("ipu", "set_autocast_ipu_dtype", set_autocast_dtype)
set_autocast_xla_dtype = _older_setter("xla", "set_autocast_xla_dtype", set_autocast_dtype)
