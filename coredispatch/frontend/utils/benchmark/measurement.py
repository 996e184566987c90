"""What a timer measured, and how it is shown."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from coredispatch.registry.around.threads import get_num_threads, set_num_threads

__all__ = [
    "Measurement",
    "TaskSpec",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "trim_sigfig",
    "unit_to_english",
]

_MAX_SIGNIFICANT_FIGURES = 4
_MIN_CONFIDENCE_INTERVAL = 25e-9  # seconds
#: the interquartile range over the median from which a measurement warns
_IQR_WARN_THRESHOLD = 0.1
_IQR_GROSS_WARN_THRESHOLD = 0.25

_UNITS = {"ns": ("nanosecond", 1e-9), "us": ("microsecond", 1e-6), "ms": ("millisecond", 1e-3)}
_UNITS["s"] = ("second", 1.0)


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which ``t`` seconds are a number from 1 to 1000, and its length."""
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(int(math.log10(t) // 3), "s")
    return unit, _UNITS[unit][1]


def unit_to_english(u: str) -> str:
    """The whole word of ``ns``, ``us``, ``ms`` or ``s``."""
    return _UNITS[u][0]


def trim_sigfig(x: float, n: int) -> float:
    """``x`` rounded to ``n`` significant figures."""
    if n != int(n):
        raise AssertionError("Number of significant figures must be an integer")
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n)
    return round(x / scale) * scale


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """The elements without repetition, in the order of their first."""
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """A block in which kernels use ``n`` threads."""
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)


@dataclasses.dataclass(repr=False, frozen=True)
class TaskSpec:
    """What was measured, without its variables."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or else the statement, with the sub-label."""
        below = f": {self.sub_label}" if self.sub_label else ""
        if self.label is not None:
            return self.label + below
        if "\n" not in self.stmt:
            return self.stmt + below
        of = f" ({self.sub_label})" if self.sub_label else ""
        return f"stmt:{of}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """The setup as a line, or as a block."""
        if self.setup == "pass" or not self.setup:
            return ""
        if "\n" in self.setup:
            return f"setup:\n{textwrap.indent(self.setup, '  ')}"
        return f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup."""
        sections = [self.title, self.description or "", self.setup_str()]
        return "\n".join(f"{text}\n" if "\n" in text else text for text in sections if text)


_FIELDS = frozenset(field.name for field in dataclasses.fields(TaskSpec))


@dataclasses.dataclass(repr=False)
class Measurement:
    """Times of a statement: ``raw_times`` in seconds, each of ``number_per_run`` runs.

    The fields of its :class:`TaskSpec` are attributes as well.
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in _FIELDS:
            return getattr(self.task_spec, name)
        raise AttributeError(f"Measurement has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds of one run, one for each measurement."""
        return [t / self.number_per_run for t in self.raw_times]

    def _quantile(self, q: float) -> float:
        return float(np.quantile(self.times, q))

    @property
    def median(self) -> float:
        """The median of :attr:`times`."""
        return self._quantile(0.5)

    @property
    def mean(self) -> float:
        """The mean of :attr:`times`."""
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        """The interquartile range of :attr:`times`."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self) -> int:
        """How many figures of the median mean something, from 1 to 4: a rough estimate.

        From the spread of the middle half of the times, at 95 %.
        """
        ordered = sorted(self.times)
        n = len(ordered)
        middle = ordered[n // 4 : math.ceil(3 * n / 4)]
        interval = 1.645 * float(np.std(middle)) / math.sqrt(len(middle))
        relative = math.log10(self.median / max(interval, _MIN_CONFIDENCE_INTERVAL))
        return min(max(math.floor(relative), 1), _MAX_SIGNIFICANT_FIGURES)

    def meets_confidence(self, threshold: float = _IQR_WARN_THRESHOLD) -> bool:
        """Whether the interquartile range is below this part of the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        """Whether the times spread suspiciously."""
        return not self.meets_confidence()

    def _warning(self) -> list[str]:
        if not self.has_warnings:
            return []
        gross = not self.meets_confidence(_IQR_GROSS_WARN_THRESHOLD)
        reason = (
            "This suggests significant environmental influence."
            if gross
            else "This could indicate system fluctuation."
        )
        return [
            f"  WARNING: Interquartile range is {self.iqr / self.median * 100:.1f}% "
            f"of the median measurement.\n           {reason}"
        ]

    @property
    def title(self) -> str:
        """The title of the task."""
        return self.task_spec.title

    @property
    def env(self) -> str | None:
        """What the runs were done with, where several are compared."""
        return self.task_spec.env

    @property
    def as_row_name(self) -> str:
        """How a table calls it."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        n = len(self.raw_times)
        unit, scale = select_unit(self.median)
        lines = [object.__repr__(self), self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if n > 1 else ''}{self.median / scale:.2f} {unit}")
        if n >= 4:
            low, high = self._quantile(0.25) / scale, self._quantile(0.75) / scale
            spread = f"{self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})"
            lines.append(f"  IQR:    {spread}")
        threads = self.task_spec.num_threads
        runs = f"{self.number_per_run} runs {'per measurement,' if n > 1 else ','}"
        lines.append(
            f"  {n} measurement{'s' if n > 1 else ''}, {runs} "
            f"{threads} thread{'s' if threads > 1 else ''}"
        )
        return "\n".join(lines + self._warning())

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, with the times of all of its measurements."""
        groups: dict[TaskSpec, list[float]] = {}
        for m in measurements:
            groups.setdefault(m.task_spec, []).extend(m.times)
        return [Measurement(1, times, spec) for spec, times in groups.items()]
