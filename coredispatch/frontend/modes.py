"""Modes: masks on the key set, as context managers and decorators.

All are correct under threads and asyncio tasks, restore what was there also after an
exception, and cost nothing when none is active.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from coredispatch.registry.dispatch.masks import MASKS, current_masks, pop_masks, push_mode
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "INFERENCE",
    "enable_grad",
    "fresh_keys",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_recording",
    "no_grad",
    "set_grad_enabled",
]

F = TypeVar("F", bound=Callable[..., Any])
AUTOGRAD = TABLE.bit("autograd")
INFERENCE = TABLE.bit("inference")
INFERENCE_MODE = TABLE.bit("inference_mode")
# No key: excluding it does nothing. It says that enable_grad was asked for in inference mode.
ASKED = TABLE.bit("grad enabled")
# (what the innermost mode has to undo, the same of the modes around it)
_entered: ContextVar[tuple[Any, ...]] = ContextVar("coredispatch_entered_modes", default=())


def is_grad_enabled() -> bool:
    """Whether operators are recorded in this thread or task.

    As in PyTorch, :class:`enable_grad` makes it true also inside :class:`inference_mode`, where
    nothing is recorded nevertheless.
    """
    excluded = current_masks()[1]
    return bool(excluded & ASKED) or not excluded & AUTOGRAD


def is_recording() -> bool:
    """:func:`is_grad_enabled`, and not inside :class:`inference_mode`."""
    return not current_masks()[1] & AUTOGRAD


def is_inference_mode_enabled() -> bool:
    """Whether :class:`inference_mode` is in force in this thread or task."""
    return bool(MASKS.active) and bool(current_masks()[0] & INFERENCE_MODE)


def fresh_keys(keys: int) -> int:
    """``keys`` for a tensor that is made without an operator."""
    return keys | INFERENCE if is_inference_mode_enabled() else keys


class Mode:
    """A context manager that may be entered again and again, and decorates functions.

    What ``__exit__`` has to undo is kept per thread and task, not in the instance: one instance
    may be in force in several of them at once.
    """

    def _push(self) -> Any:
        raise NotImplementedError

    def _pop(self, token: Any) -> None:
        pop_masks(token)

    def __enter__(self) -> Any:
        _entered.set((self._push(), _entered.get()))
        return self

    def __exit__(self, *_: object) -> None:
        token, outer = _entered.get()
        self._pop(token)
        _entered.set(outer)

    def clone(self) -> Mode:
        """A fresh instance with the same settings (one is made per decorated call)."""
        return type(self)()

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return _decorate_generator(self, function)  # type: ignore[return-value]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def async_wrapper(*args: Any, **kwargs: Any) -> Any:
                with self.clone():
                    return await function(*args, **kwargs)

            return async_wrapper  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


def _decorate_generator(mode: Mode, function: Callable[..., Any]) -> Callable[..., Any]:
    """Hold the mode only while the generator runs, not while its consumer does."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        send, value = generator.send, None
        while True:
            try:
                with mode.clone():
                    produced = send(value)
            except StopIteration as stop:
                return stop.value
            try:
                value = yield produced
                send = generator.send
            except GeneratorExit:
                with mode.clone():
                    generator.close()
                raise
            except BaseException as error:
                value, send = error, generator.throw

    return wrapper


def _record() -> Any:
    return push_mode(0, ASKED) if is_inference_mode_enabled() else push_mode(0, 0, AUTOGRAD)


def _ignore() -> Any:
    return push_mode(0, AUTOGRAD, ASKED)


class no_grad(Mode):
    """Operators are not recorded; results do not require grad. Also a decorator."""

    def __new__(cls, function: Any = None) -> Any:
        self = super().__new__(cls)
        return self if function is None else self(function)

    def _push(self) -> Any:
        return _ignore()


class enable_grad(no_grad):
    """Operators are recorded, also inside :class:`no_grad` (not inside :class:`inference_mode`)."""

    def _push(self) -> Any:
        return _record()


class set_grad_enabled(Mode):
    """Switch recording on or off: takes effect at once, and is undone when used with ``with``."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self._first: Any = self._push()

    def _push(self) -> Any:
        return _record() if self.mode else _ignore()

    def __enter__(self) -> Any:
        if self._first is not None:
            _entered.set((self._first, _entered.get()))
            self._first = None
            return self
        return super().__enter__()

    def clone(self) -> Mode:
        return set_grad_enabled(self.mode)

    def __call__(self, function: F) -> F:
        if self._first is not None:
            self._pop(self._first)
            self._first = None
        return super().__call__(function)


class inference_mode(Mode):
    """Like :class:`no_grad`, for results that never meet autograd. Also a decorator.

    Tensors made inside are *inference tensors* (``t.is_inference()``). Outside the mode they may
    be read, but not written in place nor saved for a backward pass, which raises
    :class:`AutogradError`; they have no version counter. ``inference_mode(False)`` leaves the mode.
    """

    def __new__(cls, mode: Any = True) -> Any:
        self = super().__new__(cls)
        if callable(mode):
            self.__init__()
            return self(mode)
        return self

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def _push(self) -> Any:
        if self.mode:
            return push_mode(INFERENCE_MODE, AUTOGRAD | INFERENCE, ASKED)
        if is_inference_mode_enabled():
            return push_mode(0, 0, INFERENCE_MODE | AUTOGRAD | INFERENCE | ASKED)
        return push_mode(0, 0, AUTOGRAD)

    def clone(self) -> Mode:
        return inference_mode(self.mode)
