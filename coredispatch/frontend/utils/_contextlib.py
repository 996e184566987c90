"""``cd.utils._contextlib``: the base of context managers that are decorators as well."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.registry.around.modes import decorated

__all__: list[str] = []


class _DecoratorContextManager:
    """A context manager that a subclass writes, which also decorates functions and generators."""

    def __call__(self, orig_func: Any) -> Any:
        """``orig_func`` with a :meth:`clone` of this around each call; a class warns."""
        if inspect.isclass(orig_func):
            warn(
                "Decorating classes is deprecated and will be disabled in future versions. "
                "You should only decorate functions or methods.",
                FutureWarning,
            )
            made: Any = orig_func
            made.__init__ = decorated(self, made.__init__)
            return orig_func
        return decorated(self, orig_func)

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another manager with the same settings: to override where ``__init__`` has any."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One whose class decorates without parentheses: ``@no_grad`` beside ``@no_grad()``."""

    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
