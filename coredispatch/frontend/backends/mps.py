"""Apple's Metal: there is no backend for it."""

from __future__ import annotations

import platform

__all__ = [
    "get_core_count",
    "get_name",
    "is_available",
    "is_built",
    "is_macos13_or_newer",
    "is_macos_or_newer",
]


def is_built() -> bool:
    """False: there is no backend ``mps``."""
    return False


def is_available() -> bool:
    """False: there is no backend ``mps``."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Whether the system is macOS of that version or newer."""
    release = platform.mac_ver()[0]
    parts = [int(part) for part in release.split(".")[:2] if part.isdecimal()]
    return bool(parts) and (*parts, 0)[:2] >= (major, minor)


def is_macos13_or_newer(minor: int = 0) -> bool:
    """Whether the system is macOS 13 or newer."""
    return is_macos_or_newer(13, minor)


def get_name() -> str:
    """Refused: there is no backend ``mps``."""
    raise RuntimeError("there is no backend 'mps' and so no Metal device to name; use 'cpu'")


def get_core_count() -> int:
    """Refused: there is no backend ``mps``."""
    raise RuntimeError("there is no backend 'mps' and so no Metal device with cores; use 'cpu'")
