"""Operators of few elements with numbers beside the arrays, in one compiled call each.

It is the function ``several`` of ``loops.small_pointwise``, which looks at the arguments; what it
refuses, and large arrays, go to ``kernels.elementwise.parametrized``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.kernels.elementwise.parametrized import SELU, SPLIT
from coredispatch_cpu_numba.kernels.small_pointwise import CALLS, Tasks

__all__ = ["ACCEPTS", "KERNELS", "PATIENT", "PRIORITY"]

#: the kernels reject by themselves what is not compiled yet
PATIENT = True
#: above the kernels that look at the arguments in Python
PRIORITY = 11

_LOOPS = "addcdiv addcmul clamp elu hardsigmoid hardswish lerp threshold".split()
_tasks = {name: Tasks(name, SPLIT, module="elementwise.parametrized") for name in _LOOPS}


def _kernel(
    name: str, arrays: int, numbers: int, loop: str = "", *added: float
) -> Callable[..., Any]:
    """So many arrays, then so many numbers, to which those of ``added`` are added."""
    tasks = _tasks[loop or name]
    words, total = tasks.words, arrays + numbers

    def kernel(*given: Any, out: Any = None) -> Any:
        if len(given) != total:
            raise TypeError(f"{name} takes {total} arguments, not {len(given)}")
        if added:
            given = (*given, *added)
        result = CALLS.several(given, arrays, out, words)
        return tasks.complete("several", given, arrays, out) if result is None else result

    kernel.__name__ = name
    return kernel


_bounded = _kernel("clamp", 1, 2)


def clamp(self: Any, low: Any, high: Any, out: Any = None) -> Any:
    """``self``, not below ``low`` and not above ``high``, where they are given."""
    if low is None and high is None:
        return NotImplemented  # the definition says what is wrong
    return _bounded(self, -inf if low is None else low, inf if high is None else high, out=out)


def hardtanh(self: Any, min_val: Any, max_val: Any, out: Any = None) -> Any:
    """``self`` between two bounds."""
    if min_val > max_val:
        return NotImplemented  # as above
    return _bounded(self, min_val, max_val, out=out)


def _accepts(arrays: int) -> Callable[..., bool]:
    """What the compiled function finds out, in short."""

    def accepts(self: Any, *rest: Any) -> bool:
        if not is_dense(self, 0) or self.size >= SPLIT:
            return False
        others = rest[: arrays - 1]
        return all(getattr(x, "shape", None) == self.shape for x in others)

    return accepts


KERNELS: dict[str, Callable[..., Any]] = {
    "addcdiv": _kernel("addcdiv", 3, 1),
    "addcmul": _kernel("addcmul", 3, 1),
    "clamp": clamp,
    "elu": _kernel("elu", 1, 1, "elu", 1.0, 1.0),
    "hardsigmoid": _kernel("hardsigmoid", 1, 0),
    "hardswish": _kernel("hardswish", 1, 0),
    "hardtanh": hardtanh,
    "lerp": _kernel("lerp", 2, 1),
    "relu6": _kernel("relu6", 1, 0, "clamp", 0.0, 6.0),
    "selu": _kernel("selu", 1, 0, "elu", SELU[0] * SELU[1], SELU[1], 1.0),
    "threshold": _kernel("threshold", 1, 2),
}
ACCEPTS: dict[str, Callable[..., bool]] = {
    name: _accepts({"addcdiv": 3, "addcmul": 3, "lerp": 2}.get(name, 1)) for name in KERNELS
}
