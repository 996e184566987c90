"""Modes of which a program's own objects are the state: a stack, innermost last."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from coredispatch._warnings import warn
from coredispatch.plugin import Mode, Switch

__all__ = ["ModeStack", "StackedMode"]


class ModeStack(Mode):
    """The stack of a family of :class:`StackedMode` that is in force."""

    filled: ClassVar[Switch]
    empty: ClassVar[Switch]

    def __init__(self, stack: tuple[Any, ...]) -> None:
        self.stack = stack

    def switches(self) -> Switch:
        """On while there is a mode in the stack."""
        return self.filled if self.stack else self.empty

    def state(self) -> tuple[Any, ...]:
        """The stack itself."""
        return self.stack


class StackedMode:
    """A context manager that puts itself on the stack of its family."""

    family: ClassVar[type[ModeStack]]

    def __enter__(self) -> Self:
        self.family((*(self.family.current() or ()), self)).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.family(self.family.current()).__exit__(*error)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Self:
        """Deprecated: ``with Mode():`` does it."""
        warn("`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`")
        return cls(*args, **kwargs)
