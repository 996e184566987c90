"""Exceptions that handlers of signals raise come out of every call as they are."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import coredispatch as cd

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")


class Timeout(Exception):
    """What an alarm is turned into."""


def ring(number: int, frame: Any) -> None:
    raise Timeout("the time is over")


class Clock:
    """A handler that is a method."""

    def ring(self, number: int, frame: Any) -> None:
        raise Timeout("the time is over")


@pytest.fixture(params=[ring, Clock().ring], ids=["function", "method"], autouse=True)
def handler(request: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, request.param)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@cd.library.custom_op("test_signals::slow", mutates_args=())
def slow(x: cd.Tensor, interrupted: bool) -> cd.Tensor:
    if interrupted:
        signal.raise_signal(signal.SIGALRM)
    return x + 1


@slow.register_fake
def _(x: cd.Tensor, interrupted: bool) -> cd.Tensor:
    return cd.empty_like(x)


def test_a_kernel() -> None:
    with pytest.raises(Timeout):
        slow(cd.ones(2), True)
    assert slow(cd.ones(2), False).tolist() == [2.0, 2.0]


def test_a_compiled_program_is_not_run_again() -> None:
    runs = [0]

    def count() -> None:
        runs[0] += 1

    def program(x: Any, interrupted: bool) -> Any:
        count()
        return slow(x, interrupted) * 2

    fast = cd.compile(program)
    for interrupted in (False, True, False, True, False):
        if interrupted:
            before = runs[0]
            with pytest.raises(Timeout):
                fast(cd.ones(2), True)
            assert runs[0] <= before + 1
        else:
            assert fast(cd.ones(2), False).tolist() == [4.0, 4.0]


ALARMS = """
import signal, sys
import coredispatch as cd

class Timeout(Exception):
    pass

def ring(number, frame):
    raise Timeout

signal.signal(signal.SIGALRM, ring)
layer = cd.nn.Sequential(cd.nn.Linear(8, 8), cd.nn.BatchNorm1d(8), cd.nn.ReLU())
x = cd.randn(4, 8)
program = lambda: layer(x).sum()
run = cd.compile(program) if "compiled" in sys.argv else program
for _ in range(3):
    run()
found = []
for microseconds in range(300, 1300, 25):
    try:
        # It rings again: Python itself drops what comes in a finalizer or a callback.
        signal.setitimer(signal.ITIMER_REAL, microseconds * 1e-6, 0.05)
        while True:
            run()
    except Exception as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        found.append(type(error).__name__)
print(*sorted(set(found)))
"""


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_whenever_it_comes(how: str) -> None:
    """In a process of its own: an alarm between a mode's beginning and its block stays a risk."""
    done = subprocess.run([sys.executable, "-c", ALARMS, how], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Timeout"]
