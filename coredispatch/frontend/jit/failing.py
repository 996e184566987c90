"""Errors of compiled programs while they run: they say which line of the source it was."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from coredispatch.graph.codegen import PythonCode
from coredispatch.graph.objects import ScriptError
from coredispatch.plugin import OpError

__all__ = ["explained", "located", "shown_line"]

_CLASSES: dict[type, Any] = {}


def explained(error: Exception, code: PythonCode, filename: str) -> Exception:
    """What a program raises for ``error``: it names the user's line, and is a RuntimeError."""
    return located(error, lambda: _lines(error, code, filename))


def located(error: Exception, lines: Callable[[], list[str]]) -> Exception:
    """``error`` as a RuntimeError that names ``lines`` of the source, the outermost first."""
    if getattr(error, "_script_line", False):
        return error
    place = "\n".join(("The following operation failed in a compiled program:", *lines()))
    if isinstance(error, (RuntimeError, ScriptError)):
        if type(error).__str__ in (ScriptError.__str__, RuntimeError.__str__):
            error.args = (f"{place}\n{error}",)
        elif isinstance(error, OpError):
            error.message = f"{error.message}\n{place}"
        else:  # its text is its own
            error.add_note(place)
        error._script_line = True  # type: ignore[union-attr]
        return error
    made = _class(type(error))
    if made is None:
        error.add_note(place)
        return error
    new: Exception = made(f"{place}\n{type(error).__name__}: {error}")
    new._script_line = True  # type: ignore[attr-defined]
    new.__cause__ = error
    return new


def _lines(error: BaseException, code: PythonCode, filename: str) -> list[str]:
    lines: list[str] = []
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == filename:
            origin = code.origins.get(at.tb_lineno)
            if origin is not None:
                lines += shown_line(*origin)
        at = at.tb_next
    return lines


def shown_line(file: str, line: int, name: str) -> list[str]:
    """A line of the source as a traceback shows it."""
    shown = linecache.getline(file, line).strip()
    return [f'  File "{file}", line {line}, in {name}', *([f"    {shown}"] if shown else [])]


def _class(kind: type) -> Any:
    """A class that is ``kind`` and a RuntimeError, None where there cannot be one."""
    if kind not in _CLASSES:
        try:
            made: Any = type(kind.__name__, (RuntimeError, kind), {"__str__": _text})
            made("text")
            _CLASSES[kind] = made
        except TypeError:
            _CLASSES[kind] = None
    return _CLASSES[kind]


def _text(error: BaseException) -> str:
    return str(error.args[0])
