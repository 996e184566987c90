"""Functions that compiled programs call and that are no operators: errors, futures, types."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any

from coredispatch.frontend.amp.autocast import autocast
from coredispatch.frontend.futures import Future
from coredispatch.frontend.jit import markers
from coredispatch.frontend.jit.compiler.annotations import python_type
from coredispatch.frontend.modes import is_grad_enabled, set_grad_enabled
from coredispatch.graph.objects import ScriptError
from coredispatch.graph.targets import declare_function

__all__ = ["fail", "finished", "is_of_type", "restoring", "unwrap", "wait_for"]


def fail(kind: str, message: str) -> None:
    """``raise`` and ``assert``: a :class:`ScriptError`, as in TorchScript, whatever the class."""
    raise ScriptError(f"{kind}: {message}" if message else kind)


def finished(value: Any) -> Future:
    """``fork``: the work is done at once, the future has its result."""
    made = Future()
    made.set_result(value)
    return made


def wait_for(value: Any) -> Any:
    """``wait``."""
    return value.wait()


def is_of_type(value: Any, kind: str) -> bool:
    """``isinstance`` of a type such as ``List[int]``, given as text."""
    return markers.isinstance(value, python_type(kind))


def unwrap(value: Any) -> Any:
    """The value of an ``Optional`` that must be there."""
    if value is None:
        raise ScriptError("AssertionError: Unwrapping null optional")
    return value


def grad_mode(enabled: bool) -> bool:
    """Switch the recording of gradients; what it was before."""
    before = is_grad_enabled()
    set_grad_enabled(enabled)
    return before


def begin_autocast(device_type: str, dtype: Any, enabled: bool, cache_enabled: Any) -> autocast:
    """Enter a block of ``autocast``, which :func:`end_autocast` leaves."""
    block = autocast(device_type, dtype, enabled, cache_enabled).__enter__()
    _OPEN.set((*_OPEN.get(), block))
    return block


def end_autocast(block: autocast) -> None:
    """Leave the block, the innermost one."""
    block.__exit__()
    _OPEN.set(_OPEN.get()[:-1])


def restoring(function: Any) -> Any:
    """``function``, which leaves the modes of its caller as they were where it fails."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        recorded, blocks = is_grad_enabled(), len(_OPEN.get())
        try:
            return function(*args, **kwargs)
        except BaseException:
            for block in reversed(_OPEN.get()[blocks:]):
                end_autocast(block)
            set_grad_enabled(recorded)
            raise

    return run


#: the blocks of autocast that programs of this thread or task are in
_OPEN: ContextVar[tuple[autocast, ...]] = ContextVar("coredispatch_script_autocast", default=())

declare_function("jit.fail", fail, impure=True)
declare_function("jit.finished", finished)
declare_function("jit.wait_for", wait_for, impure=True)
declare_function("jit.is_of_type", is_of_type)
declare_function("jit.unwrap", unwrap, impure=True)
declare_function("jit.grad_mode", grad_mode, impure=True, mode=True)
declare_function("jit.begin_autocast", begin_autocast, impure=True, mode=True)
declare_function("jit.end_autocast", end_autocast, impure=True, mode=True)
