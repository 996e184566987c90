"""cuSPARSELt: not used."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False: cuSPARSELt is not used."""
    return False
