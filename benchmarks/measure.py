"""Measuring two implementations side by side: alternate them, compare medians or minima."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Case",
    "Result",
    "both_libraries",
    "compare",
    "geometric_mean",
    "minima",
    "print_table",
    "progress",
    "threads_of",
]


# What is measured are compiled kernels, not what serves until they are.
os.environ.setdefault("COREDISPATCH_BACKGROUND", "0")


def threads_of(arguments: list[str]) -> str:
    """The number of threads asked for; libraries read it from the environment when imported."""
    for at, argument in enumerate(arguments):
        if argument == "--threads" and at + 1 < len(arguments):
            return arguments[at + 1]
        if argument.startswith("--threads="):
            return argument.partition("=")[2]
    return "1"


def both_libraries(threads: int, without_pack: bool) -> tuple[Any, Any] | None:
    """coredispatch and torch with so many threads each; None, and a word why, without torch."""
    try:
        import torch
    except ImportError as error:
        print(f"the benchmark needs {error.name}: pip install 'coredispatch[bench]'")
        return None
    import coredispatch as cd

    torch.set_num_threads(threads)
    cd.set_num_threads(threads)
    cd.ones(1)
    if without_pack:
        cd.plugins.unload("cpu_numba")
    return cd, torch


@dataclass(frozen=True)
class Case:
    """One thing to measure: the same work, ours and theirs."""

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]


@dataclass(frozen=True)
class Result:
    """Seconds per call of both sides and the median ratio ours / theirs."""

    name: str
    ours: float
    theirs: float
    ratio: float


Clock = Callable[[], float]
#: seconds until the threads of a side that has nothing to do sleep
_PAUSE = 0.02


def _calls_per_sample(function: Callable[[], Any], seconds: float, clock: Clock) -> int:
    start = clock()
    for number in range(2000):  # the first calls resolve; some import and compile
        function()
        if number > 1 and clock() - start > seconds:
            break
    calls = 1
    while True:
        start = clock()
        for _ in range(calls):
            function()
        elapsed = clock() - start
        if elapsed >= seconds / 2:
            return max(1, int(calls * seconds / elapsed))
        calls *= 2


def _sample(function: Callable[[], Any], calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / calls


def compare(
    case: Case, *, samples: int = 15, seconds: float = 0.02, clock: Clock = time.perf_counter
) -> Result:
    """Measure ``case``: ``samples`` pairs of about ``seconds`` each, ours and theirs in turn.

    ``clock=time.process_time`` counts CPU time, which other programs disturb less; for one thread.
    """
    calls_ours = _calls_per_sample(case.ours, seconds, clock)
    calls_theirs = _calls_per_sample(case.theirs, seconds, clock)
    ours, theirs = [], []
    for number in range(samples):
        # Which one goes first alternates too, so that a drifting clock favours nobody.
        if number % 2:
            theirs.append(_sample(case.theirs, calls_theirs, clock))
            ours.append(_sample(case.ours, calls_ours, clock))
        else:
            ours.append(_sample(case.ours, calls_ours, clock))
            theirs.append(_sample(case.theirs, calls_theirs, clock))
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return Result(case.name, statistics.median(ours), statistics.median(theirs), ratio)


def minima(
    case: Case, *, samples: int = 15, seconds: float = 0.02, clock: Clock = time.perf_counter
) -> Result:
    """As :func:`compare`, but the least of each side and their ratio.

    For kernels on a machine that others use too: what disturbs a sample only makes it longer.
    Measured by the clock, a pause comes before each sample: an OpenMP team spins for milliseconds
    after its last job, on the processors that the other side's threads need.
    """

    def sample(function: Callable[[], Any], count: int) -> float:
        if clock is not time.process_time:
            time.sleep(_PAUSE)
            function()  # wakes the threads of its own side
        return _sample(function, count, clock)

    calls = [_calls_per_sample(f, seconds, clock) for f in (case.ours, case.theirs)]
    ours, theirs = [], []
    for _ in range(samples):
        ours.append(sample(case.ours, calls[0]))
        theirs.append(sample(case.theirs, calls[1]))
    return Result(case.name, min(ours), min(theirs), min(ours) / min(theirs))


def geometric_mean(ratios: Iterable[float]) -> float:
    """Geometric mean of positive numbers."""
    return statistics.geometric_mean(list(ratios))


def progress(cases: list[Case]) -> Iterable[Case]:
    """The cases, with a progress bar on a terminal where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return cases
    return tqdm(cases, disable=not sys.stderr.isatty(), leave=False)  # type: ignore[no-any-return]


def print_table(results: list[Result], *, theirs: str = "PyTorch") -> None:
    """One row per result, microseconds, and the geometric mean of the ratios."""
    width = max(len(r.name) for r in results)
    print(f"{'call':{width}}  {'ours us':>10}  {theirs + ' us':>12}  {'ratio':>7}")
    for r in results:
        flag = "  above 1" if r.ratio > 1 else ""
        print(
            f"{r.name:{width}}  {r.ours * 1e6:10.2f}  {r.theirs * 1e6:12.2f}  {r.ratio:7.2f}{flag}"
        )
    print(
        f"{'geometric mean':{width}}  {'':10}  {'':12}  "
        f"{geometric_mean(r.ratio for r in results):7.2f}"
    )
