"""What the older names of :mod:`coredispatch.amp` say, in ``cpu.amp`` and ``cuda.amp``."""

from __future__ import annotations

import warnings

from coredispatch._frames import program_stacklevel

__all__ = ["warn_older_name"]


def warn_older_name(old: str, new: str) -> None:
    """Warn the program's line that ``old`` is written as ``amp.new`` now, in PyTorch's words."""
    warnings.warn(
        f"`torch.{old}(args...)` is deprecated. Please use `torch.amp.{new}` instead.",
        FutureWarning,
        stacklevel=program_stacklevel(),
    )
