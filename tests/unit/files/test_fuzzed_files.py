"""30,000 forged files are loaded in child processes: no crash, no raw error, nothing executed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.once

PROGRAM = Path(__file__).with_name("fuzz_saved_files.py")
FILES = 5000
#: seed and kind of the files of each child process
SHARDS = [*((seed, ()) for seed in range(4)), *((seed, ("other_formats",)) for seed in range(2))]


def report(directory: Path, *arguments: Any) -> dict[str, Any]:
    """What the fuzzing program found, run in an empty directory."""
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    at_once = os.environ | {"COREDISPATCH_BACKGROUND": "0"}  # no kernel is compiled meanwhile
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, env=at_once)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("seed", "files"),
    [pytest.param(*shard, marks=[pytest.mark.slow] * (shard[0] > 0)) for shard in SHARDS],
)
def test_forged_files_do_nothing_but_load(seed: int, files: Any, tmp_path: Path) -> None:
    found = report(tmp_path, seed, FILES, *files)
    assert found["wrong"] == []
    assert found["seen"] == []
    # Both happen, or the forging does not test what it should.
    assert found["outcome"]["refused"] + found["outcome"]["loaded"] == FILES
    assert min(found["outcome"].values()) > FILES // 50
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", ["raises", "imports", "changes", "runs", "takes_memory"])
def test_the_program_notices_faults(fault: str, tmp_path: Path) -> None:
    found = report(tmp_path, 0, 20, fault)
    assert found["wrong"] or found["seen"]
