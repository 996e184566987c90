"""``cd.utils.benchmark``: timing statements and comparing the times, as PyTorch's does.

Fuzzers and counts of instructions (Callgrind) are refused by name.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.utils.benchmark.compare import Colorize, Compare
from coredispatch.frontend.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from coredispatch.frontend.utils.benchmark.timer import Language, Timer, timer

__all__ = [
    "CallgrindStats",
    "Colorize",
    "Compare",
    "CopyIfCallgrind",
    "FunctionCount",
    "FunctionCounts",
    "FuzzedParameter",
    "FuzzedSparseTensor",
    "FuzzedTensor",
    "Fuzzer",
    "Language",
    "Measurement",
    "ParameterAlias",
    "TaskSpec",
    "Timer",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]


class _Absent:
    """A class of PyTorch's that is not here: making one says so."""

    reason = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"utils.benchmark.{type(self).__name__}: {self.reason}")


class _Drawn(_Absent):
    reason = "inputs are not drawn here; write them in globals=, or draw them with hypothesis"


class _Counted(_Absent):
    reason = "instructions are not counted; use Timer.blocked_autorange"


class Fuzzer(_Drawn):
    """Refused: inputs are not drawn here."""


class FuzzedParameter(_Drawn):
    """Refused: inputs are not drawn here."""


class ParameterAlias(_Drawn):
    """Refused: inputs are not drawn here."""


class FuzzedTensor(_Drawn):
    """Refused: inputs are not drawn here."""


class FuzzedSparseTensor(_Drawn):
    """Refused: inputs are not drawn here."""


class CallgrindStats(_Counted):
    """Refused: instructions are not counted."""


class FunctionCount(_Counted):
    """Refused: instructions are not counted."""


class FunctionCounts(_Counted):
    """Refused: instructions are not counted."""


class CopyIfCallgrind(_Counted):
    """Refused: instructions are not counted."""
