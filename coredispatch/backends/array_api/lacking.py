"""What a namespace lacks, and which kernels cannot do without it.

A library that has no ``take_along_axis`` has no ``sort`` by these kernels. The operator is then
missing, or made of others where it is a composite; all else is there. What a kernel needs is read
from its code: the attributes of namespaces that it, or a function it calls, takes. A name that the
code asks for with ``xp.has("name")`` is optional.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from coredispatch.registry.model.errors import MissingKernel

__all__ = ["Lacking", "lacking"]


class Lacking:
    """Stands for a function that ``library`` does not have; a call says so."""

    def __init__(self, library: str, name: str) -> None:
        self.library, self.name = library, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise MissingKernel(
            f"{self.library} has no {self.name!r}",
            fix="give the backend a kernel of its own in `overrides`",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Lacking(self.library, f"{self.name}.{name}")


def lacking(kernel: Callable[..., Any], namespace: type) -> set[str]:
    """The names that ``kernel`` needs and its namespaces do not have.

    ``namespace`` is the class whose instances count as namespaces, beside modules.
    """
    if isinstance(kernel, Lacking):
        return {kernel.name}
    found: set[str] = set()
    waiting, seen = [kernel], set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        cells = zip(function.__code__.co_freevars, function.__closure__ or ())
        known = {name: _content(cell) for name, cell in cells}
        for held in known.values():
            found |= {held.name} if isinstance(held, Lacking) else set()
            waiting.append(held)
        for held in map(function.__globals__.get, function.__code__.co_names):
            if getattr(held, "__module__", None) == function.__module__:
                waiting.append(held)
        spaces = {n: v for n, v in known.items() if isinstance(v, (namespace, ModuleType))}
        for variable, name in _taken(function.__code__):
            if variable in spaces and isinstance(getattr(spaces[variable], name, _NONE), _ABSENT):
                found.add(name)
    return found


class _None:
    """What ``getattr`` gives for what is not there."""


_NONE = _None()
_ABSENT = (Lacking, _None)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a function that is not bound yet
        return None


def _taken(code: CodeType) -> Iterator[tuple[str, str]]:
    """The ``(variable, attribute)`` pairs in the code, but for names that it asks about."""
    optional = {value for value in code.co_consts if isinstance(value, str)}
    variable = None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(variable, str):
            if step.argval not in optional:
                yield variable, step.argval
        loads = step.opname.startswith(("LOAD_DEREF", "LOAD_FAST"))
        variable = step.argval if loads else None
        if isinstance(variable, tuple):  # two loads in one instruction
            variable = variable[-1]
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _taken(inner)
