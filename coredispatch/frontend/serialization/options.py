"""What a caller of ``load`` decides about the reading of a file."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

__all__ = ["DEFAULTS", "OPTIONS", "Options"]


class Options(NamedTuple):
    """How a file is read.

    Attributes:
        mmap: blocks lie in the mapped file.
        encoding: of texts that Python 2 wrote.
        trusted: the user trusts the file.
    """

    mmap: bool = False
    encoding: str = "utf-8"
    trusted: bool = False


OPTIONS: Final = Options()

#: what a caller has set for all files
DEFAULTS: Final[dict[str, Any]] = {"endianness": None}
