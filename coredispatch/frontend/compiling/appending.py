"""Lists that a program only appends to: what they hold is nothing that it depends on.

``losses.append(loss.item())`` makes a list longer in each call. Were its contents a guard, no
program would ever serve a second call. The bytecode tells: wherever running code loads the name
under which the list was found, the next instruction takes the method ``append`` of it.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["only_appended"]

_METHOD = ("LOAD_METHOD", "LOAD_ATTR")
_NO_READ = ("LOAD_CLOSURE", "LOAD_CONST")


def only_appended(name: Any, codes: Iterator[types.CodeType]) -> bool:
    """Whether all code that names ``name`` appends to it, and does nothing else with it."""
    if not isinstance(name, str):
        return False
    return all(_appends(name, code) for code in codes)


def _appends(name: str, code: types.CodeType) -> bool:
    known = (*code.co_names, *code.co_freevars, *code.co_cellvars, *code.co_varnames)
    if name in code.co_consts:  # perhaps for getattr
        return False
    if name not in known:
        return True
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for step, following in zip(steps, [*steps[1:], None]):
        if step.argval != name or step.opname in _NO_READ or step.opname.startswith("MAKE_CELL"):
            continue
        if not step.opname.startswith("LOAD_") or following is None:
            return False
        if following.opname not in _METHOD or following.argval != "append":
            return False
    return True
