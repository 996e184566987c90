"""``cd.compiler.explain``: what it says of the time, and ``cd.compile`` of settings it has not."""

from __future__ import annotations

import time
from typing import Any

import pytest

import coredispatch as cd


class Clock:
    """A clock that stands still but where a test moves it, and for ``step`` at each look."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def test_the_seconds_are_those_of_capturing_and_of_the_compiler(clock: Clock) -> None:
    compiled: list[Any] = []

    def slow(graph: Any, inputs: Any) -> None:
        compiled.append(graph)
        clock.now += 3.0

    fast: Any = cd.compile(lambda x: (x * 2).exp(), backend=slow)
    x = cd.ones(3)
    for _ in range(3):
        fast(x)
    told = cd.compiler.explain(fast, x)
    assert len(compiled) == 1
    assert (told.seconds, told.compiler_seconds) == (3.0, 3.0)
    assert "Seconds of capturing and compiling: 3.000, 3.000 of them in the compiler" in str(told)
    cd.compiler.reset()
    told = cd.compiler.explain(fast, x)  # forgotten, and made once more
    assert (told.seconds, told.compiler_seconds) == (3.0, 3.0)


def test_the_seconds_of_gradients_open_sizes_and_failures(clock: Clock) -> None:
    compiled: list[Any] = []

    def slow(graph: Any, inputs: Any) -> None:
        compiled.append(graph)
        clock.now += 1.0

    fast: Any = cd.compile(lambda x: (x * 2).exp(), backend=slow)
    fast(cd.ones(3, requires_grad=True)).sum().backward()
    for size in (4, 5, 6, 6, 6):
        fast(cd.ones(size))
    told = cd.compiler.explain(fast, cd.ones(6))
    assert len(compiled) >= 2  # of the first call, and of a choice of sizes that came again
    assert told.seconds == told.compiler_seconds == len(compiled)

    def broken(graph: Any, inputs: Any) -> None:
        clock.now += 1.0
        raise NotImplementedError("of the compiler")

    failing: Any = cd.compile(lambda x: x + 1, backend=broken)
    with pytest.raises(NotImplementedError, match="of the compiler"):
        failing(cd.ones(2))
    assert failing.compiler.seconds == 1.0


def test_the_interpreter_takes_no_seconds(clock: Clock) -> None:
    clock.step = 0.5
    told = cd.compiler.explain(lambda x: x + 1, cd.ones(2))
    assert (told.seconds, told.compiler_seconds) == (0.5, 0.0)


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_an_option_that_no_compiler_has_is_refused(backend: str) -> None:
    with pytest.raises(RuntimeError, match="Unexpected optimization option zz=1"):
        cd.compile(lambda x: x, backend=backend, options={"zz": 1})
    for options in ([1], "x", 1):
        with pytest.raises(RuntimeError, match="options is a dict of names and values, got"):
            cd.compile(lambda x: x, backend=backend, options=options)  # type: ignore[call-overload]
    fast: Any = cd.compile(lambda x: x + 1, backend=backend, options={"max_autotune": True})
    assert fast(cd.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["torch", "coredispatch"])
def test_a_function_gets_mode_and_options_by_keyword(name: str) -> None:
    lib: Any = pytest.importorskip(name)
    seen: list[Any] = []

    def backend(graph: Any, inputs: Any, **settings: Any) -> Any:
        seen.append(settings)
        return graph.forward if name == "torch" else None

    for settings in (
        {"options": {"zz": 1}},
        {"mode": "reduce-overhead"},
        {"mode": "default"},
        {"options": {}},
        {},
    ):
        fast: Any = lib.compile(lambda x: x + 1, backend=backend, **settings)
        fast(lib.ones(2))
        lib.compiler.reset()
    assert seen == [{"options": {"zz": 1}}, {"mode": "reduce-overhead"}, {}, {}, {}]
