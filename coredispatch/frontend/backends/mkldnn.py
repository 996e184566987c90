"""oneDNN: not used. The settings are kept and change nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from coredispatch.frontend.backends.settings import check_settings

__all__ = [
    "VERBOSE_OFF",
    "VERBOSE_ON",
    "VERBOSE_ON_CREATION",
    "allow_tf32",
    "deterministic",
    "enabled",
    "flags",
    "is_available",
    "set_flags",
    "verbose",
]

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2

enabled = True
deterministic = False
allow_tf32 = True
check_settings(__name__, {"enabled": (bool,), "deterministic": (bool,), "allow_tf32": (bool,)})


def is_available() -> bool:
    """False: oneDNN is not used."""
    return False


def set_flags(
    _enabled: bool | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
) -> tuple[bool, bool, bool]:
    """Write the settings that are not None; returns what all were before."""
    global enabled, deterministic, allow_tf32
    before = enabled, deterministic, allow_tf32
    enabled = enabled if _enabled is None else bool(_enabled)
    deterministic = deterministic if _deterministic is None else bool(_deterministic)
    allow_tf32 = allow_tf32 if _allow_tf32 is None else bool(_allow_tf32)
    return before


@contextlib.contextmanager
def flags(
    enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True
) -> Iterator[None]:
    """A block with these settings."""
    before = set_flags(enabled, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)


@contextlib.contextmanager
def verbose(level: int) -> Iterator[None]:
    """A block in which oneDNN prints its calls: it makes none."""
    yield
