"""Which frames of the stack are the program's, and which are of this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from types import FrameType

__all__ = [
    "in_package",
    "in_standard_library",
    "program_frame",
    "program_frames",
    "program_stacklevel",
]

# The whole path: a folder of the user may have the package's name.
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def in_package(filename: str) -> bool:
    """Whether the file of a code object is one of coredispatch's own."""
    return filename.startswith(_PACKAGE)


@cache
def _standard_library() -> tuple[tuple[str, ...], tuple[str, ...]]:
    import sysconfig

    own, site = (
        {sysconfig.get_path(name) + os.sep for name in names}
        for names in (("stdlib", "platstdlib"), ("purelib", "platlib"))
    )
    return (*own, "<frozen "), tuple(site)


def in_standard_library(filename: str) -> bool:
    """Whether the file of a code object is one of Python's own."""
    own, site = _standard_library()
    return filename.startswith(own) and not filename.startswith(site)


def program_frames() -> Iterator[FrameType]:
    """The frames outside of coredispatch, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not in_package(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def program_frame() -> FrameType | None:
    """The innermost frame outside of coredispatch, None where there is none."""
    return next(program_frames(), None)


def program_stacklevel() -> int:
    """What a caller gives ``warnings.warn`` as ``stacklevel`` to name the program's line.

    How many frames of the package are between depends on how the operator was called.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and in_package(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level
