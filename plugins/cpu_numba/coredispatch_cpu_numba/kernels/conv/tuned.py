"""Convolutions by the algorithm that is the fastest on this machine: ``cd.backends.cpu.benchmark``.

While that is on, a convolution of new sizes is computed by each algorithm that serves it, a few
times; the fastest is taken from then on. What was measured is kept on disk, beside the compiled
kernels, for the machine that it was measured on.

``by_default`` is what serves when nothing is measured, NumPy's kernels included.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from coredispatch.plugin import call_raw, is_on
from coredispatch_cpu_numba import measured, thread_count
from coredispatch_cpu_numba.arrays import FLOATS
from coredispatch_cpu_numba.kernels.conv import dense, depthwise, general, winograd

__all__ = ["KERNELS", "LEAST", "PRIORITY", "WHEN", "algorithms"]

PRIORITY = 20  # above all algorithms
_LEAST = 64
_RUNS, _MOST_SECONDS = 5, 0.5
WINOGRAD = "Winograd"
Kernels = dict[str, Callable[..., Any]]
_busy = threading.local()


@cache
def _settings() -> Any:
    return import_module("coredispatch.backends.cpu")


def _always(c: Any) -> bool:
    return True


@cache
def algorithms() -> dict[str, Kernels]:
    """The kernels of each algorithm by operator: those that serve a call do not refuse it."""
    planes = general.forms_over(general.fit, *general.FORMS, _always)
    gathered = general.forms_over(general.fit, *dense.FORMS, _always)
    return {
        "sliding windows": depthwise.KERNELS,
        "gathered rows": gathered,
        "shifted planes": planes,
        WINOGRAD: winograd.KERNELS,
    }


def allowed() -> dict[str, Kernels]:
    """``algorithms``, without Winograd's where ``cd.backends.cpu.allow_winograd`` is off."""
    found = algorithms()
    if _settings().allow_winograd:
        return found
    return {name: kernels for name, kernels in found.items() if name != WINOGRAD}


def _by_default(name: str, args: tuple[Any, ...]) -> Any:
    _busy.here = True
    try:
        return call_raw(name, "cpu", *args)
    finally:
        _busy.here = False


def _seconds(call: Callable[[], Any]) -> float:
    """The shortest of a few runs; infinite where the algorithm does not serve."""
    if call() is NotImplemented:
        return float("inf")
    best = float("inf")
    until = time.perf_counter() + _MOST_SECONDS
    for _ in range(_RUNS):
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        best = min(best, end - start)
        if end > until:
            break
    return best


def _measure(name: str, args: tuple[Any, ...]) -> str:
    found = {"by default": _seconds(partial(_by_default, name, args))}
    for algorithm, kernels in allowed().items():
        found[algorithm] = _seconds(partial(kernels[name], *args))
    return min(found, key=lambda algorithm: found[algorithm])


def _key(name: str, args: tuple[Any, ...]) -> str:
    """Operator, dtype, sizes and options, the number of threads, and what is not allowed."""
    parts = [name, args[0].dtype.char, str(thread_count.wanted)]
    if not _settings().allow_winograd:
        parts.append("direct")
    for x in args:
        if isinstance(x, np.ndarray):
            parts.append("x".join(map(str, x.shape)))
        elif isinstance(x, (list, tuple)):
            parts.append(",".join(map(str, x)))
        else:
            parts.append(str(x))
    return " ".join(parts)


def _tuned(name: str) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        key = _key(name, args)
        best = measured.best(key)
        if best is None:
            best = _measure(name, args)
            measured.keep(key, best)
        kernels = allowed().get(best)
        return NotImplemented if kernels is None else kernels[name](*args)

    kernel.__name__ = name
    return kernel


def _accepts(x: Any, *others: Any) -> bool:
    """Whether to measure: not while a program is captured, whose time would be measured."""
    return (
        _settings().benchmark
        and x.dtype in FLOATS
        and not getattr(_busy, "here", False)
        and all(type(y) is not np.ndarray or y.flags.c_contiguous for y in (x, *others))
        and not is_on("compile")
    )


_OPERATORS = ("convolution", "conv_input_grad", "conv_weight_grad")
KERNELS: dict[str, Callable[..., Any]] = {name: _tuned(name) for name in _OPERATORS}
WHEN: dict[str, Callable[..., bool]] = dict.fromkeys(KERNELS, _accepts)
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
