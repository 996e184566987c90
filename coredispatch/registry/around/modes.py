"""Modes: context managers that switch layers on and off, with a state that the layers find.

A mode is a subclass of :class:`Mode` that says which layers it switches::

    class tracing(Mode):
        switch = Switch(on=("trace",))

        def __init__(self, log):
            self.log = log

and its layer finds the innermost one with ``tracing.current()``. Modes are right under threads
and asyncio tasks, are undone after an exception, nest, and cost nothing when none is active.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from coredispatch.registry.dispatch.masks import (
    MASKS,
    Scope,
    current_masks,
    current_state,
    push_mode,
)
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import RegistrationError, shown_value
from coredispatch.registry.wiring import HOOKS

__all__ = ["Mode", "Switch", "is_masked", "is_on", "key_bit"]

F = TypeVar("F", bound=Callable[..., Any])


def key_bit(name: str) -> int:
    """The bit of the key ``name`` in ``tensor.keys``, the same for the life of the process."""
    return TABLE.bit(name)


def is_on(layer: str) -> bool:
    """Whether a mode has switched ``layer`` on in this thread or task (see :func:`is_masked`)."""
    return bool(MASKS.active) and bool(current_masks()[0] & TABLE.bit(layer))


def is_masked(layer: str) -> bool:
    """Whether ``layer`` sees no call in this thread or task: a mode switched it off, or the code
    that runs was called below it."""
    return bool(MASKS.active) and bool(current_masks()[1] & TABLE.bit(layer))


class Switch:
    """What a mode does to layers, named by their keys.

    Attributes:
        on: they see every call inside, whatever the keys of its arguments.
        off: they see no call inside.
        released: modes around lose their say: they see the calls whose arguments carry their key.
    """

    __slots__ = ("exclude", "include", "off", "on", "release", "released")

    def __init__(
        self,
        on: str | tuple[str, ...] = (),
        off: str | tuple[str, ...] = (),
        released: str | tuple[str, ...] = (),
    ) -> None:
        self.on, self.off, self.released = _names(on), _names(off), _names(released)
        self.include, self.exclude, self.release = (
            sum({TABLE.bit(name) for name in names}) for names in (self.on, self.off, self.released)
        )

    def check(self) -> None:
        """Raise :class:`RegistrationError` where a layer to be switched on is not there."""
        if self.include & ~TABLE.snapshot.order.layer_bits:
            HOOKS.load_plugins()
        order = TABLE.snapshot.order
        for name in self.on:
            if not TABLE.bit(name) & order.layer_bits:
                known = [key.name for key in order.highest_first if key.kind == "layer"]
                raise RegistrationError(
                    f"a mode switches on the layer {name!r}, which is not registered",
                    fix=f"load its plugin; the layers are {', '.join(known)}",
                )

    def __repr__(self) -> str:
        return f"Switch(on={self.on}, off={self.off}, released={self.released})"


def _names(layers: str | tuple[str, ...]) -> tuple[str, ...]:
    names = (layers,) if isinstance(layers, str) else tuple(layers)
    for name in names:
        if not isinstance(name, str):
            raise RegistrationError(
                f"a Switch names layers, not {shown_value(name)}", fix='Switch(on=("my_layer",))'
            )
    return names


class Mode(Scope):
    """A context manager that may be entered again and again, and decorates functions.

    Subclasses set ``switch``, or compute it in :meth:`switches`. The direct subclasses of
    ``Mode`` are families: :meth:`current` gives the state of the innermost mode of the family.
    What ``__exit__`` has to undo is kept per thread and task, not in the instance: one instance
    may be in force in several of them at once.
    """

    switch: ClassVar[Switch] = Switch()
    #: modes of one family that differ in it do not hide each other (autocast has one per device)
    part: Any = None
    _family: ClassVar[Any] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if Mode in cls.__bases__:
            cls._family = cls

    @classmethod
    def current(cls, part: Any = None) -> Any:
        """The :meth:`state` of the innermost mode of this family in this thread or task, or None.

        Code that runs below the layer finds it as well. ``part``: of those with this :attr:`part`.
        """
        return current_state(cls._family if part is None else (cls._family, part))

    def switches(self) -> Switch:
        """What is switched on entering, where it depends on the instance or on modes around."""
        return self.switch

    def state(self) -> Any:
        """What :meth:`current` gives inside: the mode itself, unless each block has its own."""
        return self

    def push(self) -> Any:
        """Put the mode in force; returns what :meth:`pop` takes back."""
        switch = self.switches()
        if switch.include and switch.include & ~TABLE.snapshot.order.layer_bits:
            switch.check()
        family = self._family if self.part is None else (self._family, self.part)
        return push_mode(switch.include, switch.exclude, switch.release, family, self.state())

    if TYPE_CHECKING:

        def __enter__(self) -> Self: ...

    def clone(self) -> Mode:
        """A mode with the same settings: one is entered for each call of a decorated function."""
        return self

    def __call__(self, function: F) -> F:
        return decorated(self, function)


def decorated(mode: Any, function: F) -> F:
    """``function`` with ``mode.clone()``, a context manager, around each call of it.

    A generator holds it while it runs, a coroutine from its start to its end.
    """
    if inspect.isgeneratorfunction(function):
        return _decorate_generator(mode, function)  # type: ignore[return-value]
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def async_wrapper(*args: Any, **kwargs: Any) -> Any:
            with mode.clone():
                return await function(*args, **kwargs)

        return async_wrapper  # type: ignore[return-value]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with mode.clone():
            return function(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def _decorate_generator(mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
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
