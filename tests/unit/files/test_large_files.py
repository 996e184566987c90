"""Small files that ask for much: they load or are refused within half a gigabyte."""

from __future__ import annotations

import json
import subprocess
import sys

import load_large_files
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome() -> dict[str, str]:
    """What became of each file, loaded in a process of its own."""
    command = [sys.executable, load_large_files.__file__]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", load_large_files.FILES)
def test_memory_and_time_are_bounded(name: str, outcome: dict[str, str]) -> None:
    expected = "the file " if name.startswith("refused") else "loaded"
    assert outcome[name].startswith(expected)
