"""XNNPACK: not used. ``enabled`` is False and, as in PyTorch, nobody sets it."""

from __future__ import annotations

from coredispatch.frontend.backends.settings import check_settings

__all__ = ["enabled"]

enabled = False


def _refuse(value: bool) -> bool:
    raise RuntimeError("Assignment not supported")


check_settings(__name__, {"enabled": (bool, object)}, {"enabled": _refuse})
