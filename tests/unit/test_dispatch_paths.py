"""The short ways through the dispatcher give what the general one does, also under threads."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.plugin import hookimpl
from coredispatch.registry.backend import ContextKernel
from coredispatch.registry.entries import Surroundings


class Pack:
    """A plugin made of one function."""

    def __init__(self, register: Callable[[Any], None]) -> None:
        self.register = register

    @hookimpl
    def coredispatch_register(self, registrar: Any) -> None:
        self.register(registrar)


@pytest.fixture
def load() -> Iterator[Any]:
    """Load plugins for the length of a test."""
    loaded: list[str] = []

    def load(name: str, register: Callable[[Any], None]) -> None:
        cd.plugins.load(name, Pack(register))
        loaded.append(name)

    yield load
    for name in reversed(loaded):
        cd.plugins.unload(name)


# -- kernels in surroundings of their own ----------------------------------------------------------


@pytest.mark.parametrize("call", [cd.exp, lambda x: x + x, lambda x: x.add_(x)])
def test_surroundings_that_another_thread_takes_meanwhile_are_not_entered(
    load: Any, call: Callable[[Any], Any]
) -> None:
    """Between a look at whether they are busy and the entry, a thread may lose its turn."""
    inside, leave = threading.Event(), threading.Event()

    def held(function: Any) -> ContextKernel:
        def kernel(_: Any, *raws: Any, **out: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                assert leave.wait(10)
            return function(*raws, **out)

        ufunc = type("ufunc", (), {"__call__": kernel})  # in place, those are called without out=
        return ContextKernel(ufunc(), Surroundings(contextvars.Context()))

    load("held", lambda r: r.kernels("cpu", {"exp": held(np.exp), "add": held(np.add)}, priority=9))
    other = threading.Thread(target=call, args=(cd.ones(3),))

    class Slow(cd.Tensor):
        @property
        def _dtype(self) -> None:  # read on the way to the kernel
            if not inside.is_set():
                other.start()
                assert inside.wait(10)

        @_dtype.setter
        def _dtype(self, value: object) -> None:
            pass

    plain = cd.ones(3)
    call(plain)
    slow = Slow(np.ones(3, np.float32), plain.keys)
    try:
        np.testing.assert_array_equal(call(slow).raw, call(cd.ones(3)).raw)
    finally:
        leave.set()
        if inside.is_set():
            other.join()
