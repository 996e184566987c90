"""The fast path of ``MultiheadAttention`` and the transformer's encoder: there is none.

The switch is kept and changes nothing: the layers compute the same either way.
"""

from __future__ import annotations

__all__ = ["get_fastpath_enabled", "set_fastpath_enabled"]

_enabled = True


def get_fastpath_enabled() -> bool:
    """The switch."""
    return _enabled


def set_fastpath_enabled(value: bool) -> None:
    """Set the switch."""
    global _enabled
    _enabled = bool(value)
