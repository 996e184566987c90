"""Masks: what modes include in, and exclude from, every key set.

A mask lives in a context variable, so that it is right under threads and asyncio tasks. A
process-wide table of the masks in force keeps the price at one attribute read when there
are none. Hot module: compiled by mypyc where a C compiler is present.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Final

_CURRENT: Final[ContextVar[Any]] = ContextVar("coredispatch_masks", default=(0, 0))


class MaskState:
    """``active`` holds the token of every mask in force in the whole process.

    Setting and deleting an item are atomic, which a count is not: no lock is needed.
    """

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active: dict[int, Any] = {}  # by id: tokens have no hash


MASKS: Final = MaskState()


def current_masks() -> tuple[int, int]:
    """``(included, excluded)`` bits of the running thread or task."""
    included, excluded = _CURRENT.get()
    return (included, excluded)


def push_masks(include: int, exclude: int, restore: int = 0) -> Token[Any]:
    """Add bits to the masks; bits in ``restore`` are taken out of both first.

    Returns the token for :func:`pop_masks`; always pair the two with ``try``/``finally``.
    """
    included, excluded = _CURRENT.get()
    token = _CURRENT.set(((included & ~restore) | include, (excluded & ~restore) | exclude))
    MASKS.active[id(token)] = token
    return token


def pop_masks(token: Token[Any]) -> None:
    """Restore the masks as they were before the matching :func:`push_masks`."""
    MASKS.active.pop(id(token), None)
    _CURRENT.reset(token)


def masked(keys: int) -> int:
    """``(keys | included) & ~excluded`` for the running thread or task."""
    if MASKS.active:
        included, excluded = _CURRENT.get()
        keys = (keys | included) & ~excluded
    return keys
