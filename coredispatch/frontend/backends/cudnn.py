"""cuDNN, where the backend ``cuda`` has it; elsewhere convolutions are products of matrices.

The settings act on cuDNN: ``enabled``, ``benchmark`` with its limit, ``deterministic`` and
``allow_tf32``. Without it they are kept, so that a script may write and read them, and change
nothing: there is one algorithm for each convolution then, always the same, and deterministic.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from coredispatch.frontend.backends.settings import check_settings

__all__ = [
    "allow_tf32",
    "benchmark",
    "benchmark_limit",
    "deterministic",
    "enabled",
    "flags",
    "fp32_precision",
    "is_acceptable",
    "is_available",
    "set_flags",
    "version",
]

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
allow_tf32 = True
fp32_precision = "none"

_SETTINGS: dict[str, tuple[type, ...]] = {
    "enabled": (bool,),
    "benchmark": (bool,),
    "benchmark_limit": (int, type(None)),
    "deterministic": (bool,),
    "allow_tf32": (bool,),
    "fp32_precision": (str,),
}
check_settings(__name__, _SETTINGS)


def version() -> int | None:
    """The version of cuDNN, such as 91002; None where it is not used."""
    from coredispatch.frontend.cuda.devices import backend_or_none

    ask = getattr(backend_or_none(), "cudnn_version", None)
    found: int | None = None if ask is None else ask()
    return found


def is_available() -> bool:
    """Whether cuDNN is used for tensors on ``cuda``."""
    return version() is not None


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN takes a tensor: one of a floating dtype on ``cuda``, while it is enabled."""
    fits = tensor.is_floating_point() and tensor.device.type == "cuda"
    return bool(enabled and fits and is_available())


def _all() -> tuple[Any, ...]:
    return tuple(globals()[name] for name in _SETTINGS)


def _write(values: tuple[Any, ...]) -> None:
    for name, value in zip(_SETTINGS, values, strict=True):
        setattr(sys.modules[__name__], name, value)


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str | None = None,
) -> tuple[Any, ...]:
    """Write the settings that are not None; returns what all were before."""
    before = _all()
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32, _fp32_precision)
    _write(tuple(old if new is None else new for new, old in zip(given, before, strict=True)))
    return before


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:
    """A block with these settings."""
    given = (enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision)
    before = set_flags(*given)
    try:
        yield
    finally:
        _write(before)
