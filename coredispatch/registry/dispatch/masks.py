"""Masks: what modes include in, and exclude from, every key set.

A mask lives in a context variable, so that it is right under threads and asyncio tasks. A
process-wide table of the masks in force keeps the price at one attribute read when there
are none. A task inherits the masks of the context it was made in, which may be left before it
runs: a mode is in force as long as some context holds it, and leaves the table with its mark.
Hot module: compiled by mypyc where a C compiler is present.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Final
from weakref import ref

from coredispatch.registry.model.native import Mark

# (included bits, excluded bits, the mark that lives as long as they are in force anywhere, the
# states of the modes in force: family of modes -> what its layer finds; replaced, never written)
_NOTHING: Final[Any] = {}
_CURRENT: Final[ContextVar[Any]] = ContextVar("coredispatch_masks", default=(0, 0, None, _NOTHING))


class MaskState:
    """What is in force in the whole process: ``active`` holds the token of every mask that is
    pushed and popped around a call, and a weak reference to the mark of every mode.

    Setting and deleting an item are atomic, which a count is not: no lock is needed.
    """

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active: dict[Any, Any] = {}  # tokens by their id: they have no hash


MASKS: Final = MaskState()


def _gone(reference: Any) -> None:
    MASKS.active.pop(reference, None)


def current_masks() -> tuple[int, int]:
    """``(included, excluded)`` bits of the running thread or task."""
    included, excluded, _, _ = _CURRENT.get()
    return (included, excluded)


def current_state(family: Any) -> Any:
    """What the innermost mode of ``family`` in this thread or task left for its layer, or None."""
    return _CURRENT.get()[3].get(family)


def push_masks(include: int, exclude: int, restore: int = 0) -> Token[Any]:
    """Add bits to the masks; bits in ``restore`` are taken out of both first.

    Returns the token for :func:`pop_masks`; always pair the two with ``try``/``finally``.
    """
    included, excluded, mark, states = _CURRENT.get()
    token = _CURRENT.set(
        ((included & ~restore) | include, (excluded & ~restore) | exclude, mark, states)
    )
    MASKS.active[id(token)] = token
    return token


def push_mode(include: int, exclude: int, restore: int, family: Any, state: Any) -> Token[Any]:
    """:func:`push_masks` for users, who may leave it to a task, or never take it back.

    ``state`` is what :func:`current_state` gives for ``family`` from now on.
    """
    included, excluded, _, states = _CURRENT.get()
    included = (included & ~restore) | include
    excluded = (excluded & ~restore) | exclude
    mark: Any = None
    if included or excluded:
        mark = Mark()
        MASKS.active[ref(mark, _gone)] = None
    if states.get(family) is not state:
        states = {**states, family: state}
    return _CURRENT.set((included, excluded, mark, states))


def pop_masks(token: Token[Any]) -> None:
    """Restore the masks as they were before the matching :func:`push_masks`."""
    MASKS.active.pop(id(token), None)
    _CURRENT.reset(token)


def masked(keys: int) -> int:
    """``(keys | included) & ~excluded`` for the running thread or task."""
    if MASKS.active:
        included, excluded, _, _ = _CURRENT.get()
        keys = (keys | included) & ~excluded
    return keys
