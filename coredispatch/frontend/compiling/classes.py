"""What can be said of a class: who wrote it, and where its instances hold what they hold."""

from __future__ import annotations

import sys
from typing import Any

from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.ownership import is_library_name, of_library

__all__ = [
    "by_program",
    "by_user",
    "class_names",
    "extends_library",
    "held_by_name",
    "python_class",
]


def class_names(holder: Any) -> set[str]:
    """What an instance has of its classes, and would have of itself if somebody put it there."""
    bases = [base for base in type(holder).__mro__ if by_user(base)]
    return {name for base in bases for name in vars(base) if not name.startswith("__")}


def by_user(cls: type) -> bool:
    """Whether the class is written in Python, by neither us nor the standard library."""
    home = cls.__module__.partition(".")[0]
    heap = bool(cls.__flags__ & (1 << 9))  # Py_TPFLAGS_HEAPTYPE
    of_python = home in sys.stdlib_module_names and home != "__main__"
    return heap and not of_python and not of_library(cls)


def by_program(module: Any) -> bool:
    """Whether a module of this name is neither of this library, nor Python's, nor NumPy."""
    home = str(module).partition(".")[0]
    of_others = home == "numpy" or home in sys.stdlib_module_names and home != "__main__"
    return not of_others and not is_library_name(module)


def extends_library(cls: type) -> bool:
    """Whether instances of a user's class hold what methods of this library read and write.

    A class whose bases here keep nothing (``Dataset``), or what is known (``Module``), does not.
    """
    bases = [base for base in cls.__mro__ if of_library(base) and base is not Module]
    return by_user(cls) and any("__init__" in vars(base) for base in bases)


class _Bare:
    pass


def held_by_name(cls: type) -> bool:
    """Whether an instance is what its attributes are: of a program's class, without slots.

    Modules and optimizers are walked, and known by which they are.
    """
    abstract = ("abc", "typing")
    bases = [b for b in cls.__mro__ if b is not object and b.__module__ not in abstract]
    return (
        all(map(by_user, bases))
        and python_class(cls)
        and not any("__slots__" in vars(base) for base in bases)
    )


def python_class(cls: type) -> bool:
    """Whether all that an instance holds stands in its ``__dict__`` and its slots."""
    if not cls.__flags__ & (1 << 9):
        return False
    slots = 0
    for base in cls.__mro__:
        own = vars(base).get("__slots__", ())
        slots += 1 if isinstance(own, str) else len(tuple(own))
    return cls.__basicsize__ <= _Bare.__basicsize__ + 8 * slots
