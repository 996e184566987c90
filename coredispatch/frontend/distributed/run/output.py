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
        """Show the lines that have come; with `all_of_it` an unfinished one, too."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at)
                new = file.read()
        except FileNotFoundError:
            return
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        if all_of_it and self._rest:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._to.write(f"{self._prefix}{line.decode(errors='replace')}\n")
        if lines:
            self._to.flush()


def console(stream: str) -> TextIO:
    """Where a stream is shown."""
    return sys.stdout if stream == "stdout" else sys.stderr
