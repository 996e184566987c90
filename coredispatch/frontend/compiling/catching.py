"""Whether the program would go on after an error of the operator that it calls."""

from __future__ import annotations

import dis
import functools
import os
import sys
from types import CodeType, FrameType
from typing import Any

from coredispatch._frames import in_package, in_standard_library

__all__ = ["would_catch"]

#: context managers after which a program goes on; all others are taken to raise again
_SWALLOWING = {"suppress", "ExitStack", "AsyncExitStack", "raises", "assertRaises"}
_CAPTURE = os.path.join(os.path.dirname(__file__), "capture.py")  # it calls the program
_PUSH, _WITH = (dis.opmap[name] for name in ("PUSH_EXC_INFO", "WITH_EXCEPT_START"))


def would_catch() -> bool:
    """Whether a function of the program is inside a ``try``, or a ``with suppress(...)``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _CAPTURE:
        file = frame.f_code.co_filename
        if not in_package(file) and not in_standard_library(file):
            if _catches(frame.f_code, frame.f_lasti):
                return True
        frame = frame.f_back
    return False


def _catches(code: CodeType, at: int) -> bool:
    return any(start <= at < end for start, end in _guarded(code))


@functools.lru_cache(maxsize=1024)
def _guarded(code: CodeType) -> tuple[tuple[int, int], ...]:
    """The parts of the code whose errors go to an ``except`` or a ``finally``."""
    found = []
    data = iter(code.co_exceptiontable)
    while (start := _number(data)) is not None:
        length, handler, _ = _number(data), _number(data), _number(data)
        assert length is not None and handler is not None
        if _handles(code, 2 * handler):
            found.append((2 * start, 2 * (start + length)))
    return tuple(found)


def _number(data: Any) -> int | None:
    """The next number of the table: six bits in a byte, bit 6 says that more follow.

    CPython, ``Objects/exception_handling_notes.txt``.
    """
    byte = next(data, None)
    if byte is None:
        return None
    value: int = byte & 63
    while byte & 64:
        byte = next(data)
        value = value << 6 | byte & 63
    return value


def _handles(code: CodeType, handler: int) -> bool:
    """Whether a handler does more than clean up: the compiler writes such ones, too."""
    operations = code.co_code[handler::2]
    if operations[0] != _PUSH:
        return False
    return operations[1] != _WITH or bool(_SWALLOWING & {*code.co_names})
