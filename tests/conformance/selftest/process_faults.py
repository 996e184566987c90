"""Curated faults of kernels that change the process where nobody looks: refused calls, defaults."""

from __future__ import annotations

import decimal
import gc
import logging
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import TABLE

__all__ = ["PROCESS"]


def _kernel(op: str, around: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Makes a kernel that is not wrapped: what it does to NumPy's error state stays."""

    def make() -> Any:
        correct = TABLE.snapshot.registrations[op, "cpu", None][0].fn

        def kernel(*raws: Any) -> Any:
            return around(correct, raws)

        return kernel

    return make


def quiet_from_now(correct: Any, raws: Any) -> Any:
    """NumPy stays silent after the first infinity."""
    with np.errstate(all="ignore"):
        result = correct(*raws)
    if result.dtype.kind == "f" and np.isinf(result).any():
        np.seterr(all="ignore")
    return result


def quiet_when_refused(correct: Any, raws: Any) -> Any:
    """NumPy's error state is put back where the kernel succeeds."""
    kept = np.seterr(all="ignore")
    result = correct(*raws)
    np.seterr(**kept)
    return result


def default_errors(correct: Any, raws: Any) -> Any:
    """What is put back is the default error state, and not the one that was there."""
    np.seterr(all="ignore")
    result = correct(*raws)
    np.seterr(divide="warn", over="warn", invalid="warn", under="ignore")
    return result


def default_dtype(correct: Any, raws: Any) -> Any:
    """The default dtype is float32 afterwards, whatever it was."""
    cd.set_default_dtype(cd.float32)
    return correct(*raws)


def collected(correct: Any, raws: Any) -> Any:
    """The collector of garbage is stopped and started, also where it did not run."""
    gc.disable()
    result = correct(*raws)
    gc.enable()
    return result


def own_seed(correct: Any, raws: Any) -> Any:
    """Python's generator is seeded, with the same number every time."""
    random.seed(0)
    return correct(*raws)


def setting(change: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    """A kernel that changes a setting of the process and leaves it so."""

    def around(correct: Any, raws: Any) -> Any:
        change()
        return correct(*raws)

    return around


def _nobody(*_: Any) -> None:
    """What is called where nobody looks."""


def _few_digits() -> None:
    decimal.getcontext().prec = 5


def _one_processor() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _entry(op: str, says: str, around: Any) -> tuple[None, dict[str, Any]]:
    details = {"kernel": _kernel(op, around)}
    return None, {"op": op, "ops": (op,), "checks": (31,), "says": says, "details": details}


#: name -> (no mutation, details)
PROCESS: dict[str, tuple[Any, dict[str, Any]]] = {
    "silent after an overflow": _entry("exp", "error state", quiet_from_now),
    "silent after a refusal": _entry("index_select", "error state", quiet_when_refused),
    "the default error state is put back": _entry("sqrt", "error state", default_errors),
    "the default dtype is put back": _entry("floor", "default dtype", default_dtype),
    "the collector is started": _entry("ceil", "garbage", collected),
    "a generator is seeded alike": _entry("trunc", "generator", own_seed),
    "what NumPy calls for errors": _entry(
        "exp", "does with errors", setting(lambda: np.seterrcall(_nobody))
    ),
    "NumPy's buffers": _entry("sqrt", "does with errors", setting(lambda: np.setbufsize(4 * 4096))),
    "a profiler": _entry("cos", "traces", setting(lambda: sys.setprofile(_nobody))),
    "one processor": _entry("matmul", "processors", setting(_one_processor)),
    "logging": _entry("sin", "logged", setting(lambda: logging.disable(logging.ERROR))),
    "the digits of decimal numbers": _entry("tan", "decimal", setting(_few_digits)),
    "how often garbage is collected": _entry(
        "neg", "garbage", setting(lambda: gc.set_threshold(100_000))
    ),
    "a timer": _entry(
        "abs", "timers", setting(lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 1e6))
    ),
}
