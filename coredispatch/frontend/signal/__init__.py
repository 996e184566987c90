"""Signal processing: ``cd.signal.windows``."""

from __future__ import annotations

from coredispatch.frontend.signal import windows

__all__ = ["windows"]
