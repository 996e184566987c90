"""Which modules, classes and functions are the library's own, whatever name they show.

Where the library is imported as ``torch``, its modules and classes say that name.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from coredispatch.registry.model.spelling import SPELLING

__all__ = ["is_library_name", "of_library"]

_PACKAGE = __name__.partition(".")[0]


def is_library_name(module: object) -> bool:
    """Whether a module of this name is one of the library's."""
    top = str(module).partition(".")[0]
    return top == _PACKAGE or (top == "torch" and SPELLING.package == "torch")


def of_library(thing: Any) -> bool:
    """Whether a module is the library's, or a class or function is defined in one."""
    if isinstance(thing, ModuleType):
        return is_library_name(thing.__name__)
    if isinstance(thing, type):
        return is_library_name(SPELLING.module_of(thing))
    return is_library_name(getattr(thing, "__module__", ""))
