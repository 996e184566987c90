"""What programs say to a compiler of scripts; run by Python, each means what it does there."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from typing import Any, Final, TypeVar

from coredispatch._warnings import warn_of_jit
from coredispatch.frontend.futures import Future
from coredispatch.graph.capture import tracing

__all__ = [
    "Attribute",
    "Final",
    "annotate",
    "export",
    "fork",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "script_if_tracing",
    "unused",
    "wait",
]

T = TypeVar("T")


def is_scripting() -> bool:
    """Whether the code that asks is being compiled by ``jit.script``. Python that runs is not."""
    return False


def is_tracing() -> bool:
    """Whether the code that asks is being traced by ``jit.trace``."""
    return tracing.current() is not None


def export(fn: T) -> T:
    """Mark a method that a compiled module is to have beside ``forward``."""
    fn._torchscript_modifier = "export"  # type: ignore[attr-defined]
    return fn


def unused(fn: T) -> T:
    """Mark a function that a compiled program never calls: there it raises."""
    fn._torchscript_modifier = "unused"  # type: ignore[attr-defined]
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a function that stays Python; with ``drop=True`` it is treated as :func:`unused`."""
    if callable(drop):
        drop._torchscript_modifier = "ignore"
        return drop

    def mark(fn: T) -> T:
        fn._torchscript_modifier = "unused" if drop else "ignore"  # type: ignore[attr-defined]
        return fn

    return mark


def annotate(the_type: Any, the_value: T) -> T:
    """``the_value``; the type is for a compiler."""
    return the_value


class Attribute(typing.NamedTuple):
    """A value with its type, for the attribute of a compiled module."""

    value: Any
    type: Any


def interface(obj: T) -> T:
    """Mark a class that says which methods a module has."""
    warn_of_jit("interface")
    obj._is_interface = True  # type: ignore[attr-defined]
    return obj


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's ``isinstance`` that also takes ``List[int]``, ``Optional[T]`` and the like."""
    origin = typing.get_origin(target_type)
    if type(target_type) is tuple:
        return any(isinstance(obj, one) for one in target_type)
    if origin is None:
        import builtins

        return obj is None if target_type is None else builtins.isinstance(obj, target_type)
    inner = typing.get_args(target_type)
    if origin is typing.Union or "UnionType" in type(target_type).__name__:
        return any(isinstance(obj, one) for one in inner)
    if not isinstance(obj, origin):
        return False
    if origin is dict:
        return all(isinstance(k, inner[0]) and isinstance(v, inner[1]) for k, v in obj.items())
    if origin is tuple:
        return len(obj) == len(inner) and all(map(isinstance, obj, inner))
    return all(isinstance(item, inner[0]) for item in obj)


def script_if_tracing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, compiled the first time a trace calls it: so its branches and loops stay."""
    compiled: list[Any] = []

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_tracing():
            return fn(*args, **kwargs)
        if not compiled:
            from coredispatch.frontend.jit.scripting import script

            compiled.append(script(fn))
        return compiled[0](*args, **kwargs)

    call.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    return call


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> Future:
    """Run ``func`` at once and hold the result, as PyTorch does outside of compiled programs."""
    warn_of_jit("fork")
    future = Future()
    try:
        future.set_result(func(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


def wait(future: Future) -> Any:
    """The result of :func:`fork`."""
    warn_of_jit("wait")
    return future.wait()
