"""Which classes and functions ``load(weights_only=True)`` makes and calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from coredispatch.frontend.serialization.errors import UnsafeGlobalError
from coredispatch.registry.dispatch.operator import Operator

__all__ = [
    "add_safe_globals",
    "allowed",
    "allowed_as",
    "clear_safe_globals",
    "get_safe_globals",
    "safe_globals",
]

_added: dict[tuple[str, str], Any] = {}
#: the function that gives an operator by its name, as which operators are saved
_OPERATOR = ("coredispatch.registry.dispatch.operator", "_find")


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let ``load(weights_only=True)`` also make instances of these classes and call these
    functions. Add only what is harmless with any arguments.

    A pair of a class or function and a dotted name admits it under that name, which is the one
    that files of an earlier module have.

    An instance is made by calling the class, or its ``__new__``, with the arguments that its
    ``__reduce_ex__`` gave when it was saved. Its state goes through the class's own
    ``__setstate__``; without one, attributes are set on the new instance, but none that would
    hide a method or a property.
    """
    for thing in safe_globals:
        if isinstance(thing, tuple):
            if len(thing) != 2:
                raise ValueError(
                    f"add_safe_globals: {thing!r} is not a pair of a class or function and its name"
                )
            thing, path = thing
            if type(path) is not str:
                raise TypeError(f"add_safe_globals: {path!r} is not the name of {thing!r}")
            module, _, name = path.rpartition(".")
            _added[module, name] = thing
        else:
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


def allowed(module: str, name: str) -> Any:
    """The class or function of that name if it was added, else None."""
    found = _added.get((module, name))
    if found is None and (module, name) == _OPERATOR:
        return _added_operator
    return found


def _added_operator(name: str) -> Operator:
    for thing in _added.values():
        if isinstance(thing, Operator) and thing.name == name:
            return thing
    raise UnsafeGlobalError(
        f"the file holds the operator {name!r}, which load(weights_only=True) does not make",
        fix="if you trust the file, weights_only=False; or allow this operator alone with "
        f"serialization.add_safe_globals([ops.{name}])",
    )


def allowed_as(module: str, name: str) -> Any:
    """What was added of coredispatch that stands for ``torch``'s class or function of that name."""
    namespace = module.split(".")[1:2]
    for (place, known), thing in _added.items():
        parts = [part for part in place.split(".") if part != "frontend"]
        if known == name and parts[0] == "coredispatch" and parts[1:2] == namespace:
            return thing
    return None
