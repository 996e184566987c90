"""A timer of statements that waits for devices and sets the number of threads."""

from __future__ import annotations

import enum
import textwrap
import timeit
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from coredispatch.frontend.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    set_torch_threads,
)
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Language", "Timer", "timer"]


class Language(enum.Enum):
    """In which language a statement is written."""

    PYTHON = 0
    CPP = 1


def timer() -> float:
    """The time, in seconds, when all devices have done their work."""
    for name, (backend, _) in TABLE.snapshot.backends.items():
        if name not in ("cpu", "meta"):
            for index in range(backend.device_count()):
                backend.synchronize(index)
    return timeit.default_timer()


class Timer:
    """Measures the time that a statement takes.

    Args:
        stmt: the code to run.
        setup: code that is run once before each measurement.
        globals: the variables that the code sees; ``torch`` and ``cd`` are coredispatch.
        label, sub_label, description, env: how tables show it, see :class:`Compare`.
        num_threads: how many threads kernels may use, 1 by default.
        language: ``Language.PYTHON``; C++ is refused by name, and so is ``global_setup``.

    >>> Timer("x + y", globals={"x": cd.ones(9), "y": cd.ones(9)}).blocked_autorange()
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language not in (Language.PYTHON, "py", "python"):
            raise NotImplementedError(f"Timer(language={language!r}): statements are Python only")
        if global_setup:
            raise ValueError(
                "global_setup is C++ only, got a `global_setup` argument in Python: use setup"
            )
        import coredispatch

        names = dict(globals or {})
        names.setdefault("torch", coredispatch)
        names.setdefault("cd", coredispatch)
        stmt, setup = (textwrap.dedent(code).strip() or "pass" for code in (stmt, setup))
        self._clock = timer
        self._timer = timeit.Timer(stmt, setup, timer, names)
        self._task_spec = TaskSpec(stmt, setup, "", label, sub_label, description, env, num_threads)

    def _time(self, number: int) -> float:
        # A clock may give the same time twice.
        return max(self._timer.timeit(number), 1e-9)

    def _measurement(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One measurement of ``number`` runs, after a few to warm up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._time(max(number // 100, 2))
            return self._measurement(number, [self._time(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        """Not available: use :meth:`blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> NoReturn:
        """Not available: use :meth:`blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _estimate_block_size(self, min_run_time: float) -> int:
        """So many runs that reading the clock is a thousandth of their time."""
        with set_torch_threads(self._task_spec.num_threads):
            clock = timeit.Timer("pass", timer=self._clock)
            overhead = float(np.median([max(clock.timeit(0), 1e-9) for _ in range(5)]))
            number = 1
            while True:
                taken = self._time(number)
                if overhead / taken <= 1e-4 and taken >= min_run_time / 1000:
                    return number
                if taken > min_run_time:
                    return number
                number *= 10

    def _threaded_loop(
        self,
        number: int,
        min_run_time: float,
        max_run_time: float | None,
        enough: Callable[[list[float]], bool],
        callback: Callable[[int, float], Any] | None,
    ) -> Measurement:
        """Blocks of ``number`` runs until the time is over, or enough was measured."""
        total = 0.0
        times: list[float] = []
        with set_torch_threads(self._task_spec.num_threads):
            while total < min_run_time or not enough(times):
                if max_run_time is not None and total >= max_run_time:
                    break
                times.append(self._time(number))
                total += times[-1]
                if callback is not None:
                    callback(number, times[-1])
        return self._measurement(number, times)

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Blocks of runs for ``min_run_time`` seconds at least.

        A block has so many runs that reading the clock costs next to nothing. ``callback`` gets the
        number of runs and the seconds of each block.
        """
        number = self._estimate_block_size(min_run_time)
        return self._threaded_loop(number, min_run_time, None, lambda times: True, callback)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """:meth:`blocked_autorange` until the interquartile range is below a part of the median.

        It ends after ``max_run_time`` seconds in any case.
        """
        number = self._estimate_block_size(min_run_time=0.05)

        def enough(times: list[float]) -> bool:
            if len(times) <= 3:
                return False
            return self._measurement(number, times).meets_confidence(threshold=threshold)

        return self._threaded_loop(number, min_run_time, max_run_time, enough, callback)

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not available: Valgrind's counts need an interpreter that was built for them."""
        raise NotImplementedError(
            "Timer.collect_callgrind: instructions are not counted; use blocked_autorange"
        )
