"""Showing what the ranks write: their output goes to files, which are read as they grow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

__all__ = ["Tail"]

_COLOURS = (36, 33, 35, 32, 34, 31)


class Tail:
    """One stream of one rank, shown line by line.

    Args:
        path: the file that the rank writes.
        to: where to show it.
        prefix: in front of each line; coloured on a terminal.
        rank: chooses the colour.
    """

    def __init__(self, path: Path, to: TextIO, prefix: str, rank: int) -> None:
        self._path, self._to = path, to
        self._prefix = prefix
        if prefix and to.isatty():
            self._prefix = f"\033[{_COLOURS[rank % len(_COLOURS)]}m{prefix}\033[0m"
        self._at = 0
        self._rest = b""

    def show(self, *, all_of_it: bool = False) -> None:
        """Show the lines that have come, and bars; with `all_of_it` an unfinished one, too."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at)
                new = file.read()
        except FileNotFoundError:
            return
        self._at += len(new)
        waiting = self._rest + new
        # A progress bar writes itself anew after a carriage return, and ends its line when it is
        # done. A carriage return that comes last may be the first half of a line end.
        end = max(waiting.rfind(b"\n"), waiting.rfind(b"\r", 0, -1)) + 1
        if all_of_it and end < len(waiting):
            waiting += b"\n"
            end = len(waiting)
        self._rest = waiting[end:]
        lines = waiting[:end].splitlines(keepends=True)
        for line in lines:
            self._to.write(self._prefix + line.decode(errors="replace"))
        if lines:
            self._to.flush()


def console(stream: str) -> TextIO:
    """Where a stream is shown."""
    return sys.stdout if stream == "stdout" else sys.stderr
