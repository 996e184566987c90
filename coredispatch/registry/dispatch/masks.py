"""Masks: what modes include in, and exclude from, every key set.

A mask lives in a context variable, so that it is right under threads and asyncio tasks. A
process-wide table of the masks in force keeps the price at one attribute read when there
are none. A task inherits the masks of the context it was made in, which may be left before it
runs: a mode is in force as long as some context holds it, and leaves the table with its mark.
Hot module: compiled by mypyc where a C compiler is present.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from threading import Lock
from typing import Any, Final
from weakref import ref

from coredispatch.registry.model.native import Mark

# (included bits, excluded bits, the mark that lives as long as they are in force anywhere, the
# states of the modes in force: family of modes -> what its layer finds; replaced, never written,
# the backward pass that runs)
_NOTHING: Final[Any] = {}
_CURRENT: Final[ContextVar[Any]] = ContextVar(
    "coredispatch_masks", default=(0, 0, None, _NOTHING, None)
)


class MaskState:
    """What is in force in the whole process: ``active`` holds the token of every mask that is
    pushed and popped around a call, and a weak reference to the mark of every mode.

    Setting and deleting an item are atomic, which a count is not: no lock is needed.

    ``including`` are those of them that include bits. Where there is none, a key set without any
    bit of ``excludable`` stays as it is, and the context variable need not be read: during a
    backward pass or under ``no_grad``, that is every call whose arguments require no gradient,
    in this thread and in all others. ``excludable`` are the bits that were ever excluded: it only
    grows, under a lock, so that no thread can miss one.
    """

    __slots__ = ("active", "excludable", "including")

    def __init__(self) -> None:
        self.active: dict[Any, Any] = {}  # tokens by their id: they have no hash
        self.including: dict[Any, Any] = {}
        self.excludable: int = 0


MASKS: Final = MaskState()
_GROWING: Final = Lock()


def _gone(reference: Any) -> None:
    MASKS.active.pop(reference, None)
    MASKS.including.pop(reference, None)


def _excludes(bits: int) -> None:
    if bits & ~MASKS.excludable:
        with _GROWING:
            MASKS.excludable |= bits


def current_masks() -> tuple[int, int]:
    """``(included, excluded)`` bits of the running thread or task."""
    included, excluded, _, _, _ = _CURRENT.get()
    return (included, excluded)


def current_state(family: Any) -> Any:
    """What the innermost mode of ``family`` in this thread or task left for its layer, or None."""
    return _CURRENT.get()[3].get(family)


def includes_layers() -> bool:
    """Whether a mode of this thread or task includes layers that no tensor carries."""
    return bool(MASKS.active) and _CURRENT.get()[0] != 0


def current_pass() -> Any:
    """The innermost backward pass of this thread or task, or None."""
    return _CURRENT.get()[4]


def push_masks(include: int, exclude: int, restore: int = 0, backward: Any = None) -> Token[Any]:
    """Add bits to the masks; bits in ``restore`` are taken out of both first.

    ``backward`` is a backward pass, for which they are in force. Returns the token for
    :func:`pop_masks`; always pair the two with ``try``/``finally``.
    """
    _excludes(exclude)
    included, excluded, mark, states, outer = _CURRENT.get()
    if backward is None:
        backward = outer
    token = _CURRENT.set(
        ((included & ~restore) | include, (excluded & ~restore) | exclude, mark, states, backward)
    )
    MASKS.active[id(token)] = token
    if include:
        MASKS.including[id(token)] = token
    return token


def push_mode(include: int, exclude: int, restore: int, family: Any, state: Any) -> Token[Any]:
    """:func:`push_masks` for users, who may leave it to a task, or never take it back.

    ``state`` is what :func:`current_state` gives for ``family`` from now on.
    """
    _excludes(exclude)
    included, excluded, _, states, backward = _CURRENT.get()
    included = (included & ~restore) | include
    excluded = (excluded & ~restore) | exclude
    mark: Any = None
    if included or excluded:
        mark = Mark()
        reference = ref(mark, _gone)
        MASKS.active[reference] = None
        if included:
            MASKS.including[reference] = None
    if states.get(family) is not state:
        states = {**states, family: state}
    return _CURRENT.set((included, excluded, mark, states, backward))


def pop_masks(token: Token[Any]) -> None:
    """Restore the masks as they were before the matching :func:`push_masks`."""
    MASKS.active.pop(id(token), None)
    if MASKS.including:
        MASKS.including.pop(id(token), None)
    _CURRENT.reset(token)


def masked(keys: int) -> int:
    """``(keys | included) & ~excluded`` for the running thread or task."""
    if MASKS.including or keys & MASKS.excludable:
        included, excluded, _, _, _ = _CURRENT.get()
        keys = (keys | included) & ~excluded
    return keys
