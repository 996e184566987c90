"""The lines of the program that led to a call."""

from __future__ import annotations

import os
import sys

import coredispatch

__all__ = ["program_stack"]

_OURS = os.path.dirname(coredispatch.__file__) + os.sep


def program_stack() -> list[str]:
    """``file(line): function`` of the frames outside coredispatch, innermost first."""
    found: list[str] = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return found
