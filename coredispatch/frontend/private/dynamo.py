"""``cd._dynamo``: marks, settings and counters of the compiler, by PyTorch's names."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.announced import announced_class
from coredispatch.frontend.compiler import (
    allow_in_graph,
    assume_constant_result,
    compile,
    disable,
    explain,
    is_compiling,
    list_backends,
    reset,
)
from coredispatch.frontend.compiling.settings import COUNTERS, SETTINGS
from coredispatch.frontend.compiling.sizes import mark
from coredispatch.plugin import Value

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "counters",
    "disable",
    "disallow_in_graph",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "optimize",
    "optimize_assert",
    "reset",
]

config = SETTINGS
counters = COUNTERS


#: the class of compiled modules: there are none
OptimizedModule = announced_class(
    "_dynamo.OptimizedModule", 'compile(..., backend="eager") gives the module itself'
)


def optimize(
    backend: Any = "inductor",
    *,
    nopython: bool = False,
    disable: bool = False,
    dynamic: bool | None = None,
    **guards: Any,
) -> Any:
    """``compile`` as it was spelled at first: ``optimize("inductor")(model)``.

    ``nopython`` is ``fullgraph``. Raises TypeError for hooks into guards: they are others here.
    """
    given = [name for name, value in guards.items() if value is not None]
    if given:
        raise TypeError(f"_dynamo.optimize: {', '.join(given)} is not there; leave it away")
    options: Any = {"fullgraph": nopython, "dynamic": dynamic, "disable": disable}
    return lambda model: compile(model, backend=backend, **options)


def optimize_assert(backend: Any, *, dynamic: bool | None = None, **guards: Any) -> Any:
    """:func:`optimize` with ``nopython=True``."""
    return optimize(backend, nopython=True, dynamic=dynamic, **guards)


def is_dynamo_supported() -> bool:
    """False: there is no compiler that reads bytecode."""
    return False


def is_compile_supported(device_type: Any) -> bool:
    """False: nothing is compiled for the device."""
    return False


def mark_static_address(t: Any, guard: bool = True) -> None:
    """A mark: the memory stays where it is."""


def disallow_in_graph(fn: Any) -> Any:
    """``fn`` for Python alone: a program that calls it is not compiled."""
    return disable(fn)


def graph_break(msg: str = "") -> None:
    """The compiler stops here: the program that runs is not captured."""
    refuse = disable(lambda: None, reason=msg or "graph_break()")
    refuse()


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """The length of a dimension, or of several, varies: compiled functions get a symbol for it.

    A function that needs the length as a number is refused with RuntimeError when it is captured
    with this tensor. Lengths of 0 and 1 are numbers all the same.
    """
    mark(t, index, "dynamic")


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """As :func:`mark_dynamic`; where the length is needed as a number it is one."""
    mark(t, index, "maybe")


def mark_static(t: Any, index: Any = None) -> None:
    """The length of a dimension, or of all, is a number, whatever else is known of it."""
    if isinstance(t, Value):
        mark(t, index, "static")
