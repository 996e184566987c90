"""Programs in PyTorch's style, unchanged: coredispatch prints what PyTorch prints, step by step.

``programs/recorded`` holds what PyTorch 2.13 printed; where PyTorch is installed it runs as well.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "given")
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def printed(*command: str) -> str:
    """What a program prints, run in its own folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, cwd=PROGRAMS
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def assert_same(mine: str, theirs: str) -> None:
    """The same lines; numbers may differ by 1e-4, relative to those above 1."""
    assert NUMBER.sub("#", mine) == NUMBER.sub("#", theirs)
    for one, other in zip(NUMBER.findall(mine), NUMBER.findall(theirs), strict=True):
        assert float(one) == pytest.approx(float(other), rel=1e-4, abs=1e-4)


def test_there_are_twelve() -> None:
    assert len(NAMES) >= 12


@pytest.mark.parametrize("name", NAMES)
def test_a_program_prints_what_pytorch_prints(name: str) -> None:
    mine = printed("-m", "coredispatch", "run", f"{name}.py")
    assert_same(mine, (PROGRAMS / "recorded" / f"{name}.txt").read_text("utf-8"))
    recorded = os.environ.get("COREDISPATCH_COMPARE") == "recorded"
    if not recorded and importlib.util.find_spec("torch") is not None:
        assert_same(mine, printed("-W", "ignore", f"{name}.py"))
