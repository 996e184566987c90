"""What the older names of :mod:`coredispatch.amp` say, in ``cpu.amp`` and ``cuda.amp``."""

from __future__ import annotations

from coredispatch._warnings import warn

__all__ = ["warn_older_name"]


def warn_older_name(old: str, new: str) -> None:
    """Warn the program's line that ``old`` is written as ``amp.new`` now, in PyTorch's words."""
    warn(
        f"`torch.{old}(args...)` is deprecated. Please use `torch.amp.{new}` instead.",
        FutureWarning,
    )
