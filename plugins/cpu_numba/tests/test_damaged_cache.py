"""Compiled code on disk that is damaged, or written by two processes, costs time and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

CHILD = """
import coredispatch as cd

program = cd.compile(lambda x: (x * 3 - 1).relu().sum())
x = cd.arange(1000.0) - 500
for _ in range(3):
    assert program(x).item() == (x * 3 - 1).relu().sum().item() == 373751.0, program(x)
print("right")
"""


def started(directory: Path) -> subprocess.Popen[str]:
    caches = {
        "COREDISPATCH_CACHE_DIR": str(directory / "graphs"),
        "COREDISPATCH_NUMBA_CACHE_DIR": str(directory / "loops"),
        "COREDISPATCH_BACKGROUND": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env={**os.environ, **caches},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def are_right(*children: subprocess.Popen[str]) -> None:
    for out, errors in [child.communicate() for child in children]:
        assert out == "right\n", errors


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What two processes leave that fill one directory at once."""
    directory = tmp_path_factory.mktemp("filled")
    are_right(started(directory), started(directory))
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert {".nbi", ".nbc"} <= {path.suffix for path in files}
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda data: data,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "garbage": lambda data: b"garbage",
    "flipped": flipped,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files(damage: str, filled: dict[str, bytes], tmp_path: Path) -> None:
    for name, data in filled.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DAMAGE[damage](data))
    are_right(started(tmp_path))


_CANNOT_BE_WRITTEN = """
import os, shutil
import coredispatch as cd

x = cd.linspace(-3, 3, 5000)
assert cd.compile(lambda x: x * 2 + 1)(x).allclose(x * 2 + 1)
place = os.environ["COREDISPATCH_NUMBA_CACHE_DIR"]
if {gone}:
    shutil.rmtree(place)
else:
    def refuse(*paths, **options):
        raise OSError(28, "No space left on device")
    os.replace = refuse
program = cd.compile(lambda x: x.sin() * 2 + x.cos())
for _ in range(3):
    assert program(x).allclose(x.sin() * 2 + x.cos(), atol=1e-5)
if not {gone}:
    assert not [name for name in os.listdir(place) if ".tmp." in name]
print("right")
"""


@pytest.mark.parametrize("gone", [True, False])
def test_a_directory_that_cannot_be_written_any_more_costs_nothing(
    tmp_path: Path, gone: bool
) -> None:
    caches = {"COREDISPATCH_NUMBA_CACHE_DIR": str(tmp_path / "loops")}
    command = [sys.executable, "-c", _CANNOT_BE_WRITTEN.format(gone=gone)]
    for background in "01":
        environment = {**os.environ, **caches, "COREDISPATCH_BACKGROUND": background}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.stdout == "right\n", done.stderr
