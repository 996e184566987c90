"""KleidiAI: not used."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False: KleidiAI is not used."""
    return False
