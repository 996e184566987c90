"""``--dashboard``: what the ranks left of their numbers, as lines of the launcher."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any, TextIO

__all__ = ["Dashboard"]

_PAUSE = 2.0  # seconds between two lines
_MOST = 8  # ranks in a line; of more, those that spend least time in communication


class Dashboard:
    """Shows the newest numbers of all ranks, at most every two seconds.

    Args:
        folder: where the ranks leave them.
        to: where to show them; standard error.
    """

    def __init__(self, folder: Path, to: TextIO | None = None) -> None:
        self._folder, self._to = folder, to or sys.stderr
        self._shown: list[dict[str, Any]] = []
        self._at = 0.0

    def show(self, *, now: bool = False) -> None:
        """Show a line where there is something new."""
        if not now and time.monotonic() - self._at < _PAUSE:
            return
        self._at = time.monotonic()
        ranks = self._read()
        if ranks and ranks != self._shown:
            self._shown = ranks
            print(self._line(ranks), file=self._to, flush=True)

    def _read(self) -> list[dict[str, Any]]:
        found = []
        for path in self._folder.glob("*.stats"):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads(path.read_text()))
        return sorted(found, key=lambda report: int(report["rank"]))

    def _line(self, ranks: list[dict[str, Any]]) -> str:
        slow = sorted(ranks, key=lambda report: float(report["communication"]))
        shown = sorted(slow[:_MOST], key=lambda report: int(report["rank"]))
        parts = [
            f"rank {r['rank']} {r['samples_per_second']:.1f}/s, {r['communication']:.0%} in "
            "communication"
            for r in shown
        ]
        if len(ranks) > _MOST:
            parts.append(f"{len(ranks) - _MOST} other ranks")
        if len(ranks) > 1:
            parts.append(f"slowest: rank {slow[0]['rank']}")
        total = sum(float(r["samples_per_second"]) for r in ranks)
        return f"step {ranks[0]['step']}: {total:.1f} samples/s ({'; '.join(parts)})"
