"""How much memory a stretch of work takes beside what was there, where the system says so."""

from __future__ import annotations

from pathlib import Path

__all__ = ["Memory"]

_STATUS = Path("/proc/self/status")
_PEAK = Path("/proc/self/clear_refs")
#: what to write into clear_refs so that the peak starts anew (proc(5))
_RESET = "5"


class Memory:
    """Resident memory of this process from now on; of Linux, which can forget an old peak."""

    def __init__(self) -> None:
        self.known = True
        try:
            _PEAK.write_text(_RESET)
            self.before = _resident("VmRSS")
        except (OSError, LookupError):
            self.known = False

    def taken(self) -> dict[str, int] | None:
        """``peak``, and what is ``kept`` now, in bytes beside the start; None where unknown."""
        if not self.known:
            return None
        peak, now = _resident("VmHWM"), _resident("VmRSS")
        return {"peak": max(0, peak - self.before), "kept": now - self.before}


def _resident(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)
