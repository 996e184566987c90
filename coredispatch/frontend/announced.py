"""Names that are there so that programs import, and say what is missing when they are used."""

from __future__ import annotations

from typing import Any, NoReturn

from coredispatch.registry.model.spelling import SPELLING

__all__ = ["announced_class", "announced_function"]


def _refuse(name: str, fix: str) -> NoReturn:
    raise NotImplementedError(f"{SPELLING.of(name)} is not there yet\n  fix: {fix}")


def announced_function(name: str, fix: str) -> Any:
    """A function called ``name`` (with its namespace) that raises NotImplementedError."""

    def function(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse(name, fix)

    function.__doc__ = f"Not there yet: raises NotImplementedError. Instead: {fix}."
    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__module__ = f"coredispatch.{name.rpartition('.')[0]}".rstrip(".")
    function.announced = fix  # type: ignore[attr-defined]
    return function


def announced_class(name: str, fix: str, *bases: type) -> Any:
    """A class called ``name`` of which there are no instances: making one raises.

    ``isinstance`` and annotations work, and are true: nothing is of the class.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        _refuse(name, fix)

    details = {
        "__init__": __init__,
        "announced": fix,
        "__doc__": f"Not there yet: raises NotImplementedError. Instead: {fix}.",
        "__module__": f"coredispatch.{name.rpartition('.')[0]}".rstrip("."),
    }
    return type(name.rpartition(".")[2], bases, details)
