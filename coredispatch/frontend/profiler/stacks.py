"""The lines of the program that led to a call."""

from __future__ import annotations

from coredispatch._frames import program_frames

__all__ = ["program_stack"]


def program_stack() -> list[str]:
    """``file(line): function`` of the frames outside coredispatch, innermost first."""
    return [
        f"{frame.f_code.co_filename}({frame.f_lineno}): {frame.f_code.co_name}"
        for frame in program_frames()
    ]
