"""Which classes and functions ``load(weights_only=True)`` makes and calls."""

from __future__ import annotations

import builtins
import collections
import contextlib
from collections.abc import Iterator
from typing import Any

from coredispatch.registry.model.generator import Generator

__all__ = [
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "safe_globals",
    "trusted",
]

# Containers and numbers; nothing here can run code of the file's choosing.
_TRUSTED = {
    ("builtins", name): getattr(builtins, name)
    for name in ("bytearray", "complex", "dict", "frozenset", "list", "range", "set", "slice")
} | {
    ("collections", name): getattr(collections, name)
    for name in ("Counter", "OrderedDict", "defaultdict", "deque")
}
_TRUSTED[Generator.__module__, Generator.__qualname__] = Generator
_added: dict[tuple[str, str], Any] = {}


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let ``load(weights_only=True)`` also make instances of these classes and call these
    functions. Add only what is harmless with any arguments.
    """
    for thing in safe_globals:
        _added[thing.__module__, thing.__qualname__] = thing


def get_safe_globals() -> list[Any]:
    """What :func:`add_safe_globals` added."""
    return list(_added.values())


def clear_safe_globals() -> None:
    """Forget what :func:`add_safe_globals` added."""
    _added.clear()


@contextlib.contextmanager
def safe_globals(things: list[Any]) -> Iterator[None]:
    """:func:`add_safe_globals` for the length of a ``with`` block."""
    before = dict(_added)
    add_safe_globals(things)
    try:
        yield
    finally:
        _added.clear()
        _added.update(before)


def trusted(module: str, name: str) -> Any:
    """The class or function of that name if it may be used, else None."""
    return _TRUSTED.get((module, name)) or _added.get((module, name))
