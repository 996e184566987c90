"""What a code object names: globals, modules of the library, and the code inside of it."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any

from coredispatch.frontend.ownership import of_library

__all__ = ["codes", "global_names", "imports", "library_names"]


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code and what is defined inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def library_names(code: types.CodeType, namespace: Any) -> Iterator[tuple[Any, str]]:
    """The attributes of modules of this library that code reads by a global: ``F.relu``."""
    holder: Any = None
    for step in dis.get_instructions(code):
        name = step.argval
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            holder = namespace.get(name)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and holder is not None:
            found = getattr(holder, name, None)  # some modules of ours are loaded on first use
            yield holder, name
            holder = found
        elif step.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG"):
            holder = None
        if not (isinstance(holder, types.ModuleType) and of_library(holder)):
            holder = None


def global_names(code: types.CodeType) -> set[str]:
    """The names that code looks up, or sets, as globals."""
    words = ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "STORE_NAME")
    return {step.argval for step in dis.get_instructions(code) if step.opname in words}


def imports(code: types.CodeType) -> bool:
    return dis.opmap["IMPORT_NAME"] in code.co_code[::2]
