"""``elastic_launch``: ranks that a program starts with a function, and how their failures come."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from coredispatch.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
)
from coredispatch.distributed.launcher.api import LaunchConfig, elastic_launch

pytestmark = pytest.mark.once

PROGRAM = str(Path(__file__).parent / "elastic_launch_program.py")


@pytest.mark.parametrize(
    ("how", "launcher", "said"),
    [
        ("well", "processes", ["{0: (0, 1.5), 1: (1, 1.5)}"]),
        ("well", "mpi", ["{0: (0, 1.5), 1: (1, 1.5)}"]),
        ("once", "processes", ["{0: (0, 1.5), 1: (1, 1.5)}"]),
        ("raise", "processes", ["work 1 1 <N/A>", "True"]),
        ("raise", "mpi", ["work 1 1 <N/A>", "True"]),
        ("kill", "processes", ["work 1 -9 SIGKILL", "False"]),
    ],
)
def test_functions(
    how: str, launcher: str, said: list[str], run_program: Any, request: Any
) -> None:
    if launcher == "mpi":
        request.getfixturevalue("mpirun")  # skips where there is none
    done = run_program(sys.executable, PROGRAM, how, launcher)
    assert done.stdout.splitlines() == said, done.stderr


def test_programs(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1], os.environ['RANK']).touch()\n"
        "sys.exit(int(sys.argv[2]))\n"
    )
    config = LaunchConfig(1, 1, 2, max_restarts=0)
    assert elastic_launch(config, sys.executable)(script, tmp_path, 0) == {0: None, 1: None}
    assert (tmp_path / "0").exists() and (tmp_path / "1").exists()
    with pytest.raises(ChildFailedError, match="FAILED\nrank . failed first .exit status 3"):
        elastic_launch(config, sys.executable)(script, tmp_path, 3)


def test_failures_and_what_is_refused() -> None:
    failures = {
        0: ProcessFailure(0, 11, 1, "<N/A>", "another rank is gone", 5.0),
        2: ProcessFailure(2, 12, -15, "<N/A>", "", 4.0),
    }
    error = ChildFailedError("train", failures)
    assert error.get_first_failure() == (2, failures[2])
    assert "train FAILED" in str(error) and "rank 2 failed first (SIGTERM)" in str(error)
    assert failures[0].signal_name() == "<N/A>"
    with pytest.raises(ValueError, match="shutdown_timeout must be non-negative, got -1"):
        LaunchConfig(1, 1, 1, shutdown_timeout=-1)
    with pytest.raises(TypeError, match="cannot be sent to the ranks.*\n  fix: "):
        elastic_launch(LaunchConfig(1, 1, 1), lambda: os.getpid())()
