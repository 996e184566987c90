"""Older spellings around ``autocast``: ``get_autocast_gpu_dtype`` and the like."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.amp.autocast import autocast, get_autocast_dtype, is_autocast_enabled
from coredispatch.plugin import DType

__all__: list[str] = []

_nesting = threading.local()
_DEVICES = {"gpu": "cuda", "cpu": "cpu"}
_ABSENT = ("xla", "ipu")  # devices that no backend brings


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
        return device not in _ABSENT and is_autocast_enabled(device)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{asked}({device!r})``."
    return function


get_autocast_gpu_dtype = _older("cuda", "get_autocast_gpu_dtype", DType)
get_autocast_cpu_dtype = _older("cpu", "get_autocast_cpu_dtype", DType)
get_autocast_xla_dtype = _older("xla", "get_autocast_xla_dtype", DType)
is_autocast_cpu_enabled = _older("cpu", "is_autocast_cpu_enabled", bool)
is_autocast_xla_enabled = _older("xla", "is_autocast_xla_enabled", bool)
is_autocast_ipu_enabled = _older("ipu", "is_autocast_ipu_enabled", bool)


def is_autocast_cache_enabled() -> bool:
    """Whether weights that autocast converted are kept until the block ends."""
    state = autocast.current("cpu") or autocast.current("cuda")
    return state is None or state.cache is not None


def clear_autocast_cache() -> None:
    """Forget the weights that the blocks in force converted."""
    for device in _DEVICES.values():
        state = autocast.current(device)
        if state is not None and state.cache is not None:
            state.cache.clear()


def autocast_increment_nesting() -> int:
    """Count a block that a program enters by itself; returns how many there are."""
    _nesting.depth = getattr(_nesting, "depth", 0) + 1
    return int(_nesting.depth)


def autocast_decrement_nesting() -> int:
    """Count a block that a program leaves by itself; returns how many there are."""
    _nesting.depth = getattr(_nesting, "depth", 0) - 1
    return int(_nesting.depth)


def _by_block(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"{name}(): autocast is set for a block, not for the thread\n"
            "  fix: with autocast(device_type, dtype=..., enabled=..., cache_enabled=...): ..."
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Refused: autocast is set for a block, ``with autocast(...)``."
    return function


set_autocast_enabled = _by_block("set_autocast_enabled")
set_autocast_dtype = _by_block("set_autocast_dtype")
set_autocast_cpu_enabled = _by_block("set_autocast_cpu_enabled")
set_autocast_cpu_dtype = _by_block("set_autocast_cpu_dtype")
set_autocast_gpu_dtype = _by_block("set_autocast_gpu_dtype")
set_autocast_cache_enabled = _by_block("set_autocast_cache_enabled")
