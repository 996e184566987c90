"""Losing ranks: the job ends with the right number of steps, from complete checkpoints."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.elastic import ElasticState

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def launch(run_program: Any) -> Any:
    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "coredispatch", "launch", "--launcher", "processes"]
        return run_program(*command, *arguments)

    return run


@pytest.mark.parametrize("losses", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_ranks_killed_at_random_moments(launch: Any, tmp_path: Path, losses: int) -> None:
    """Losses in one job: at each start one rank kills itself some random time later."""
    program = str(Path(__file__).parent / "lossy_program.py")
    arguments = ["--nproc-per-node", "2", "--max-restarts", "40", program, str(tmp_path / "state")]
    done = launch(*arguments, str(losses))
    assert done.stderr.count("was killed by SIGKILL") == losses
    assert "ended after 30 steps with the sum 435" in done.stdout


@pytest.mark.slow
def test_the_examples(launch: Any, tmp_path: Path) -> None:
    done = launch("--nproc-per-node", "2", str(ROOT / "examples/ddp_digits.py"), "--epochs", "2")
    assert re.search(r"2 ranks: [89]\d\.\d% of the held-out", done.stdout)
    folder = str(tmp_path / "gpt")
    arguments = [str(ROOT / "examples/sharded_gpt.py"), "--checkpoint", folder, "--steps"]
    assert "step 20: loss" in launch("--nproc-per-node", "2", *arguments, "20").stdout
    assert "goes on after step 20" in launch("--nproc-per-node", "1", *arguments, "21").stdout
    arguments = [str(ROOT / "examples/elastic.py"), "--checkpoint", str(tmp_path / "elastic")]
    done = launch("--nproc-per-node", "2", "--max-restarts", "1", *arguments)
    assert "round 1 goes on after step 20" in done.stdout
    assert "done after 40 steps in round 1" in done.stdout


def test_commit_and_restore(tmp_path: Path) -> None:
    def write(rank: int) -> None:
        model = nn.Linear(2, 2)
        model.weight.detach().fill_(3.0)
        state = ElasticState(tmp_path / "s", model, step=5, name="run")
        assert not state.restore()
        state.commit()
        state.step = 6  # not committed

    def read(rank: int) -> tuple[Any, ...]:
        model = nn.Linear(2, 2)
        state = ElasticState(tmp_path / "s", model, step=0, name="")
        seen: list[Any] = []
        state.register_reset_callback(lambda before, now: seen.append((before, now)))
        assert state.restore()
        return state.step, state.name, model.weight.tolist(), seen

    dist.threads.spawn(write, nprocs=2)
    for found in dist.threads.spawn(read, nprocs=3):
        assert found == (5, "run", [[3.0, 3.0], [3.0, 3.0]], [(2, 3)])
    with pytest.raises(ValueError, match="a name of its own"):
        ElasticState(tmp_path / "s", commit=1)
