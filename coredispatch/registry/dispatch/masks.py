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

from coredispatch.registry.model.errors import OpError
from coredispatch.registry.model.native import Mark, mypyc_attr

# (included bits, excluded bits, the mark that lives as long as they are in force anywhere, the
# states of the modes in force: family of modes -> what its layer finds; replaced, never written,
# the backward pass that runs)
_NOTHING: Final[Any] = {}
_CURRENT: Final[ContextVar[Any]] = ContextVar(
    "coredispatch_masks", default=(0, 0, None, _NOTHING, None)
)


# (what the innermost mode has to undo, the same of the modes around it)
_ENTERED: Final[ContextVar[Any]] = ContextVar("coredispatch_entered_modes", default=())


class MaskState:
    """What is in force in the whole process: ``active`` holds an entry for every call that
    runs with masks of its own, and a weak reference to the mark of every mode.

    Setting and deleting an item are atomic, which a count is not: no lock is needed.

    ``including`` are those of them that include bits. Where there is none, a key set without any
    bit of ``excludable`` stays as it is, and the context variable need not be read: during a
    backward pass or under ``no_grad``, that is every call whose arguments require no gradient,
    in this thread and in all others. ``excludable`` are the bits that were ever excluded: it only
    grows, under a lock, so that no thread can miss one.
    """

    __slots__ = ("active", "excludable", "including")

    def __init__(self) -> None:
        self.active: dict[Any, Any] = {}
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


def push_mode(include: int, exclude: int, restore: int, family: Any, state: Any) -> Token[Any]:
    """Add bits to the masks; bits in ``restore`` are taken out of both first.

    :meth:`Scope.pop` takes it back; users may leave it to a task, or never take it back. ``state``
    is what :func:`current_state` gives for ``family`` from now on.
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


def call_masked(fn: Any, args: Any, exclude: int, restore: int = 0, backward: Any = None) -> Any:
    """``fn(*args)`` with the bits ``exclude`` excluded; the masks come back after it.

    Bits in ``restore`` are taken out of both masks first. ``backward`` is a backward pass, for
    which they are in force. Masks are pushed and popped in this one function, which is compiled: an
    exception that a signal's handler raises comes before both or between the two, never after a
    push and outside of its ``try``.
    """
    _excludes(exclude)
    before = _CURRENT.get()
    included, excluded, mark, states, outer = before
    if backward is None:
        backward = outer
    place = object()  # its id is the key of the entry
    try:
        _CURRENT.set((included & ~restore, (excluded & ~restore) | exclude, mark, states, backward))
        MASKS.active[id(place)] = place
        return fn(*args)
    finally:
        _CURRENT.set(before)
        MASKS.active.pop(id(place), None)


@mypyc_attr(allow_interpreted_subclasses=True)
class Scope:
    """The block of a mode, entered and left without a place where a signal's handler could raise.

    ``push()`` of the subclass puts the mode in force and returns what :meth:`pop` takes back.
    """

    def __enter__(self) -> Any:
        mode: Any = self
        before = _CURRENT.get()
        try:
            _ENTERED.set((mode.push(), _ENTERED.get()))
        except BaseException:
            _CURRENT.set(before)
            raise
        return mode

    def __exit__(self, kind: Any = None, error: Any = None, traceback: Any = None) -> None:
        entered = _ENTERED.get()
        if not entered:
            raise OpError(
                f"{type(self).__name__} is left in another thread or task than it was entered in",
                fix="enter and leave a mode in the same one, by `with`",
            )
        token, outer = entered
        self.pop(token)
        _ENTERED.set(outer)

    def pop(self, token: Any) -> None:
        """Restore what was in force before the matching ``push()``."""
        _CURRENT.reset(token)


def masked(keys: int) -> int:
    """``(keys | included) & ~excluded`` for the running thread or task."""
    if MASKS.including or keys & MASKS.excludable:
        included, excluded, _, _, _ = _CURRENT.get()
        keys = (keys | included) & ~excluded
    return keys
