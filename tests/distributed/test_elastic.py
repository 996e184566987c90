"""Losing ranks: the job ends with the right number of steps, from complete checkpoints."""

from __future__ import annotations

import contextlib
import os
import random
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starting import LEAST_PLUGINS, THREADS

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.elastic import ElasticState

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
KILLED = Path(__file__).parent / "killed_program.py"
killed_program = SimpleNamespace(**runpy.run_path(str(KILLED)))


@pytest.fixture
def launch(run_program: Any) -> Any:
    def run(*arguments: str, every_plugin: bool = False) -> Any:
        command = [sys.executable, "-m", "coredispatch", "launch", "--launcher", "processes"]
        return run_program(*command, *arguments, every_plugin=every_plugin)

    return run


def test_ranks_killed_at_random_moments(launch: Any, tmp_path: Path) -> None:
    """Losses in one job: at each start one rank kills itself some random time later."""
    losses = 6
    program = str(Path(__file__).parent / "lossy_program.py")
    arguments = ["--nproc-per-node", "2", "--max-restarts", "40", program, str(tmp_path / "state")]
    done = launch(*arguments, str(losses))
    assert done.stderr.count("was killed by SIGKILL") == losses
    assert "ended after 30 steps with the sum 435" in done.stdout


def _kill_one(logs: Path, diary: Path, job: subprocess.Popen[str], chance: random.Random) -> bool:
    """Kill a rank while it starts, or some milliseconds after one of its commits, or in one."""
    rank, commits = chance.randrange(2), chance.randrange(-1, killed_program.STEPS)
    while job.poll() is None:
        started = list(logs.glob(f"*/attempt_0/{rank}.pid"))
        done = diary.read_text().count("committed") if diary.exists() else -1
        if started and done >= commits and (pid := started[0].read_text()):
            time.sleep(chance.uniform(0.0, 0.5 if commits < 0 else 0.05))
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
                return True
        time.sleep(0.002)
    return False  # it has ended before


def _lose_a_rank(folder: Path, launcher: str, seed: int) -> bool:
    """One job; whether a rank was killed in it."""
    folder.mkdir()
    command = [sys.executable, "-m", "coredispatch", "launch", "--launcher", launcher]
    command += ["--nproc-per-node", "2", "--max-restarts", "1", "--log-dir", str(folder / "logs")]
    job = subprocess.Popen(
        [*command, str(KILLED), str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | THREADS | LEAST_PLUGINS,
    )  # fmt: skip
    try:
        killed = _kill_one(folder / "logs", folder / "diary", job, random.Random(seed))
        out, err = job.communicate()
    finally:
        if job.poll() is None:
            job.terminate()
            job.communicate()
    assert job.returncode == 0, err
    assert f"ended after {killed_program.STEPS} steps" in out
    assert not killed or "was killed by SIGKILL" in err
    committed = 0
    for line in (folder / "diary").read_text().splitlines():
        what, step = line.split()
        assert what == "committed" or int(step) >= committed, f"lost: {line} after {committed}"
        committed = int(step)
    return killed


# COREDISPATCH_KILLED=20 kills a rank at twenty moments.
MOMENTS = int(os.environ.get("COREDISPATCH_KILLED", "8"))


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, MOMENTS), marks=pytest.mark.slow)]
)
def test_a_rank_killed_from_outside(tmp_path: Path, mpirun: Any, seeds: range) -> None:
    """No hang, no lost commit, and the weights of training that nothing has disturbed."""
    model, optimizer = killed_program.model_and_optimizer()
    for step in range(killed_program.STEPS):
        killed_program.train(model, optimizer, step, slice(None))
    killed = 0
    for seed in seeds:
        folder = tmp_path / str(seed)
        killed += _lose_a_rank(folder, ("mpi", "processes")[seed % 2], seed)
        for name, value in cd.load(folder / "end.cd").items():
            assert cd.allclose(value, model.state_dict()[name], atol=1e-5), (seed, name)
    assert killed >= len(seeds) // 2


@pytest.mark.slow
def test_the_examples(launch: Any, tmp_path: Path) -> None:
    done = launch(
        "--nproc-per-node", "2", str(ROOT / "examples/ddp_digits.py"), "--epochs", "2",
        every_plugin=True,
    )  # fmt: skip
    assert re.search(r"2 ranks: [89]\d\.\d% of the held-out", done.stdout)
    folder = str(tmp_path / "gpt")
    arguments = [str(ROOT / "examples/sharded_gpt.py"), "--checkpoint", folder, "--steps"]
    assert "step 20: loss" in launch("--nproc-per-node", "2", *arguments, "20").stdout
    assert "goes on after step 20" in launch("--nproc-per-node", "1", *arguments, "21").stdout
    arguments = [str(ROOT / "examples/elastic.py"), "--checkpoint", str(tmp_path / "elastic")]
    done = launch("--nproc-per-node", "2", "--max-restarts", "1", *arguments)
    assert "round 1 goes on after step 20" in done.stdout
    assert "done after 40 steps in round 1" in done.stdout
    assert "done after 40 steps in round 0" in launch("--nproc-per-node", "2", *arguments).stdout


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
