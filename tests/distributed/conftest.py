"""Programs on several ranks, as a user starts them; all on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import coredispatch as cd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the modules that the tests share
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_program() -> Run:
    """``run_program(*command, ok=True)``: a program of this folder, or any command.

    Its ranks load what they need, so that they start soon; with ``every_plugin=True`` what a user
    has, unless the tests around were told what to load.
    """

    def run(
        *command: str,
        ok: bool = True,
        env: dict[str, str] | None = None,
        every_plugin: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        from starting import LEAST_PLUGINS, THREADS

        every_plugin &= "COREDISPATCH_PLUGINS" not in os.environ
        selected = {} if every_plugin else LEAST_PLUGINS
        # pytest's timeout interrupts a run that hangs, and the run then ends its process.
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=os.environ | THREADS | selected | (env or {}),
        )
        if ok:
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
        return done

    return run


@pytest.fixture
def mpirun(run_program: Run) -> Run:
    """``mpirun(ranks, program, *args)``: a program on ranks that mpiexec starts."""
    info = cd.plugins.info("mpi") if "mpi" in cd.plugins else {}
    if not info or not cd.distributed.is_mpi_available():
        pytest.skip("coredispatch-mpi or mpi4py is not installed")
    if not Path(info["mpiexec"]).exists():
        pytest.skip("there is no mpiexec: pip install mpich")

    def run(
        ranks: int, program: str, *args: str, ok: bool = True, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [info["mpiexec"], "-n", str(ranks), sys.executable, "-m", "mpi4py"]
        return run_program(*command, str(HERE / program), *args, ok=ok, env=env)

    return run
