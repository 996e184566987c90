"""Calls of overloaded functions and methods: which signature they mean."""

from __future__ import annotations

import inspect
from typing import Any

from coredispatch.frontend.jit.compiler.calls import Calls, declared_types_of
from coredispatch.frontend.jit.compiler.types import fits
from coredispatch.frontend.jit.compiler.values import Items, Val
from coredispatch.frontend.jit.overloads import check_defaults, declarations

__all__ = ["Overloads"]


class Overloads(Calls):
    """Which of the declared signatures a call means: the first that takes the arguments."""

    def overload(self, fn: Any, args: list[Any], kwargs: dict[str, Any], method: bool) -> Any:
        """The declaration whose annotations hold for a call, ``fn`` itself where it has none."""
        declared = declarations(fn)
        if not declared:
            return fn
        for one in declared:
            check_defaults(one, fn)
            if self._takes(one, fn, args, kwargs, method):
                return one
        given = ", ".join(str(self.type_of(a)) for a in (*args[method:], *kwargs.values()))
        shown = "\n".join(f"  {one.__name__}{inspect.signature(one)}" for one in declared)
        raise self.error(
            f"Arguments for call are not valid: no overload of {fn.__name__}() takes ({given}). "
            f"The following variants are available:\n{shown}"
        )

    def _takes(
        self, declared: Any, fn: Any, args: list[Any], kwargs: dict[str, Any], method: bool
    ) -> bool:
        kinds, _, named = declared_types_of(declared)
        if not named:
            raise self.error(
                f"Must explicitly add type annotations to overloaded functions: {fn.__qualname__}"
            )
        try:
            bound = inspect.signature(fn).bind(*args, **kwargs).arguments
        except TypeError:
            return False
        given = list(bound.items())[method:]
        return all(
            fits(self.type_of(value), kinds[name])
            for name, value in given
            if isinstance(value, (Val, Items)) and name in kinds
        )
