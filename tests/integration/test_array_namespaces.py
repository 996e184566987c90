"""The array-API base over libraries of other people: five lines each, in ``third_party/``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "third_party"
LIBRARIES = {"jax": "jax", "torch": "torch", "array_api_strict": "array_api_strict"}
# Operators whose kernels take the longest way round what the standard does not have.
FURTHER = ("getitem", "index_put", "scatter_add", "gather")

pytestmark = pytest.mark.xdist_group("array_namespaces")


def installed(name: str, folder: Path) -> dict[str, str]:
    """The environment of a program that finds the backend as an installed plugin."""
    facts = folder / f"over_{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: over-{name}\nVersion: 1.0\n")
    entry = f"[coredispatch.plugins]\n{name} = over_{name}\n"
    (facts / "entry_points.txt").write_text(entry)
    paths = [str(folder), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "COREDISPATCH_PLUGINS": name,
        "OMP_NUM_THREADS": "1",
    }


def certified(name: str, folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "coredispatch", "conformance", "run", "--quiet"]
    done = subprocess.run(
        [*command, "--backend", name, *options],
        env=installed(name, folder),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_namespace_boots_as_it_is(name: str, tmp_path: Path) -> None:
    pytest.importorskip(LIBRARIES[name])
    if name == "torch":
        pytest.importorskip("array_api_compat")
    certified(name, tmp_path, "--level", "boot")


@pytest.mark.timeout(900)
def test_nothing_but_the_standard_is_used(tmp_path: Path) -> None:
    pytest.importorskip("array_api_strict")
    options = [option for op in FURTHER for option in ("--op", op)]
    certified("array_api_strict", tmp_path, "--level", "inference", *options)


def test_each_is_a_few_lines() -> None:
    for path in HERE.glob("over_*.py"):
        body = path.read_text().partition("class ")[2].partition("@hookimpl")[0]
        assert len(body.strip().splitlines()) <= 5, path
