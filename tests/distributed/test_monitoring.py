"""Who is slow: numbers for the program, for TensorBoard, and on the launcher's dashboard."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.distributed.monitoring import StepMonitor, slowest
from coredispatch.distributed.run.dashboard import Dashboard

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]


class _Writer:
    def __init__(self) -> None:
        self.scalars: dict[str, list[tuple[float, int]]] = {}

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.setdefault(name, []).append((value, step))


def test_the_rank_that_the_others_wait_for() -> None:
    writer = _Writer()

    def program(rank: int) -> Any:
        monitor = StepMonitor(every=5, writer=writer)
        found = []
        for _ in range(10):
            before = monitor.group.waited
            dist.all_reduce(cd.ones(3))
            assert monitor.group.waited > before
            if rank != 1:
                monitor.group.waited += 1000.0  # as if rank 1 had come late
            found.append(monitor.step(8))
        return [reports for reports in found if reports is not None]

    for reports in dist.threads.spawn(program, nprocs=3):
        assert [report.step for report in reports[1]] == [10, 10, 10]
        assert slowest(reports[1]) == 1
        assert reports[1][0].communication > reports[1][1].communication
        assert all(report.samples_per_second > 0 for report in reports[0])
    assert [step for _, step in writer.scalars["slowest"]] == [5, 10]
    assert {value for value, _ in writer.scalars["slowest"]} == {1}
    assert "communication/rank2" in writer.scalars and "throughput/total" in writer.scalars


def test_the_share_counts_groups_that_are_no_more() -> None:
    def program(rank: int) -> float:
        other = dist.new_group([0, 1])
        other.waited = 1000.0
        monitor = StepMonitor(every=1)
        dist.destroy_process_group(other)
        (report, _) = monitor.step()
        return report.communication

    assert all(0 <= share <= 1 for share in dist.threads.spawn(program, nprocs=2))


def test_lines_of_the_dashboard(tmp_path: Path) -> None:
    shown = io.StringIO()
    board = Dashboard(tmp_path, shown)
    board.show(now=True)
    for rank in (1, 0):
        details = {"rank": rank, "step": 7, "samples_per_second": 10.0, "communication": rank / 4}
        (tmp_path / f"{rank}.stats").write_text(json.dumps(details))
    (tmp_path / "2.stats").write_text("{")  # a rank may be writing
    board.show(now=True)
    board.show(now=True)
    assert shown.getvalue() == (
        "step 7: 20.0 samples/s (rank 0 10.0/s, 0% in communication; rank 1 10.0/s, 25% in "
        "communication; slowest: rank 0)\n"
    )


def test_of_many_ranks_those_are_shown_that_the_others_wait_for(tmp_path: Path) -> None:
    shown = io.StringIO()
    for rank in range(100):
        details = {
            "rank": rank,
            "step": 7,
            "samples_per_second": 1.0,
            "communication": 1 - rank / 100,
        }
        (tmp_path / f"{rank}.stats").write_text(json.dumps(details))
    Dashboard(tmp_path, shown).show(now=True)
    line = shown.getvalue()
    assert line.startswith("step 7: 100.0 samples/s (rank 92 1.0/s, 8% in communication; rank 93 ")
    assert line.endswith("rank 99 1.0/s, 1% in communication; 92 other ranks; slowest: rank 99)\n")


@pytest.mark.slow
def test_a_launched_program(run_program: Any) -> None:
    command = [sys.executable, "-m", "coredispatch", "launch", "--launcher", "processes"]
    example = str(ROOT / "examples/ddp_digits.py")
    done = run_program(*command, "--dashboard", "--nproc-per-node", "2", example, "--epochs", "3")
    assert re.search(r"step \d+: \d+\.\d samples/s \(rank 0 .*; rank 1 .*slowest", done.stderr)
