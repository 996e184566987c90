"""What the ranks do in training: samples per second, time in communication, who is behind.

:class:`StepMonitor` reports to the program and to TensorBoard. Under ``coredispatch launch
--dashboard`` each rank leaves its numbers in a file, which the launcher shows; a
DistributedDataParallel module does so by itself.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.collectives import all_gather
from coredispatch.frontend.distributed.groups import resolved
from coredispatch.frontend.distributed.world import world

__all__ = ["DASHBOARD", "RankReport", "StepMonitor", "dashboard_monitor", "slowest"]

#: the variable by which the launcher names the folder for the ranks' numbers
DASHBOARD = "COREDISPATCH_DASHBOARD"
_PAUSE = 1.0  # seconds between two files of a rank


@dataclass(frozen=True)
class RankReport:
    """Some steps of one rank.

    Attributes:
        rank: in the group.
        step: how many steps it has done in all.
        samples_per_second: its own, not those of the job.
        communication: the share of the time that it spent in collectives, waiting included.
    """

    rank: int
    step: int
    samples_per_second: float
    communication: float


def slowest(reports: list[RankReport]) -> int:
    """The rank that the others wait for: the one that spends least time in communication."""
    return min(reports, key=lambda report: report.communication).rank


class StepMonitor:
    """Counts steps; all ranks call :meth:`step` equally often.

    Args:
        every: after how many steps the ranks tell each other; 0 for never.
        writer: ``utils.tensorboard.SummaryWriter``, used on rank 0: ``throughput/rank0``,
            ``communication/rank0``, ..., ``throughput/total`` and ``slowest``.
        process_group: the ranks; the default group.

    Example::

        monitor = dist.monitoring.StepMonitor(every=50, writer=SummaryWriter())
        for x, y in loader:
            ...
            monitor.step(len(x))
    """

    def __init__(self, every: int = 50, writer: Any = None, process_group: Any = None) -> None:
        self.group = resolved(process_group)
        self.every, self.writer = every, writer
        self.steps = 0
        folder = os.environ.get(DASHBOARD)
        self._file = None if folder is None else Path(folder) / f"{self.group.rank()}.stats"
        self._begin()
        self._written = time.monotonic()

    def _begin(self) -> None:
        self._since, self._samples = time.monotonic(), 0
        self._waited = _waited()

    def _own(self) -> RankReport:
        seconds = max(time.monotonic() - self._since, 1e-9)
        share = min((_waited() - self._waited) / seconds, 1.0)
        return RankReport(self.group.rank(), self.steps, self._samples / seconds, share)

    def step(self, samples: int = 1) -> list[RankReport] | None:
        """One more step of `samples` samples; every so often the reports of all ranks."""
        self.steps += 1
        self._samples += samples
        due = self.steps == 1 or time.monotonic() - self._written > _PAUSE
        if self._file is not None and due:  # the first step: a job may end within a second
            self._leave(self._own())
        if not self.every or self.steps % self.every:
            return None
        reports = self._exchange(self._own())
        self._begin()
        if self.writer is not None and self.group.rank() == 0:
            self._show(reports)
        return reports

    def _leave(self, report: RankReport) -> None:
        """Leave the numbers for the launcher, whole or not at all."""
        assert self._file is not None
        part = self._file.with_suffix(".new")
        part.write_text(json.dumps(asdict(report)))
        part.rename(self._file)
        self._written = time.monotonic()
        if not self.every:
            self._begin()

    def _exchange(self, own: RankReport) -> list[RankReport]:
        row = cd.tensor([own.step, own.samples_per_second, own.communication], dtype=cd.float64)
        every = [cd.empty_like(row) for _ in range(self.group.size())]
        all_gather(every, row, self.group)
        return [
            RankReport(rank, int(values[0]), values[1], values[2])
            for rank, values in enumerate(part.tolist() for part in every)
        ]

    def _show(self, reports: list[RankReport]) -> None:
        for report in reports:
            name, step = f"rank{report.rank}", report.step
            self.writer.add_scalar(f"throughput/{name}", report.samples_per_second, step)
            self.writer.add_scalar(f"communication/{name}", report.communication, step)
        total = sum(report.samples_per_second for report in reports)
        self.writer.add_scalar("throughput/total", total, self.steps)
        self.writer.add_scalar("slowest", slowest(reports), self.steps)


def _waited() -> float:
    """Seconds that this process has spent in collectives."""
    state = world()
    return state.waited + sum(group.waited for group in state.groups.values())


def dashboard_monitor(process_group: Any) -> StepMonitor | None:
    """A monitor that only leaves numbers for the launcher; None where it does not ask for them."""
    return StepMonitor(0, None, process_group) if DASHBOARD in os.environ else None
