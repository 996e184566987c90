"""Older spellings around ``autocast``: ``get_autocast_gpu_dtype`` and the like."""

from __future__ import annotations

import threading
from typing import Any

from coredispatch.frontend.amp.autocast import autocast, get_autocast_dtype, is_autocast_enabled
from coredispatch.plugin import DType

__all__: list[str] = []

_nesting = threading.local()
_DEVICES = {"gpu": "cuda", "cpu": "cpu"}


def get_autocast_gpu_dtype() -> DType:
    """``get_autocast_dtype("cuda")``."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> DType:
    """``get_autocast_dtype("cpu")``."""
    return get_autocast_dtype("cpu")


def is_autocast_cpu_enabled() -> bool:
    """``is_autocast_enabled("cpu")``."""
    return is_autocast_enabled("cpu")


def is_autocast_xla_enabled() -> bool:
    """False: no backend brings that device."""
    return False


is_autocast_ipu_enabled = is_autocast_xla_enabled


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
