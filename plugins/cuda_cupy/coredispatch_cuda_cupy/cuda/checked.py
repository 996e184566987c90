"""``checked`` on the device: what a rule refuses is an error at the next wait.

The error is the operator's own (see :mod:`..device_checks`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from coredispatch.plugin import checked_values
from coredispatch_cuda_cupy import device_checks as checks
from coredispatch_cuda_cupy.cuda.index_arguments import as_index, is_index
from coredispatch_cuda_cupy.cuda.layout import blocks, dense
from coredispatch_cuda_cupy.cuda.loading import Family, is_float

__all__ = ["kernels"]


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernel of this family, by operator."""
    integers, numbers = Family(cupy, "checks"), Family(cupy, "bounds")

    def check_integers(by: Any, low: Any, high: Any, flagged: tuple[Any, ...]) -> None:
        by = as_index(cupy, by)
        least = -checks.NO_BOUND if low is None else int(low)
        end = (checks.NO_BOUND if high is None else int(high)) + 1
        arguments = (by, by.size, end, least, *flagged)
        integers("check_values", by.dtype, blocks(by.size), 256, arguments)

    def check_numbers(by: Any, low: Any, high: Any, nan: bool, flagged: tuple[Any, ...]) -> None:
        by = dense(cupy, by)
        bounds = -inf if low is None else float(low), inf if high is None else float(high)
        arguments = (by, by.size, *bounds, int(nan), *flagged)
        numbers("check_numbers", by.dtype, blocks(by.size), 256, arguments)

    def checked(self: Any, by: Any, low: Any, high: Any, rule: str) -> Any:
        floating = is_float(by.dtype)
        # Bounds of integers are whole: one that is not may be the operator's own business.
        whole = all(bound is None or bound == int(bound) for bound in (low, high))
        if not floating and not (is_index(by) and whole):
            return NotImplemented
        if by.size:
            flag, number = checks.flag(cupy, rule)
            if floating:
                nan = checked_values.refuses_nan(rule)
                check_numbers(by, low, high, nan, (flag, checks.NUMBER, number))
            else:
                check_integers(by, low, high, (flag, checks.INTEGER, number))
            checks.finish(cupy)
        return self.copy()

    return {"checked": checked}
