"""Tests of the suite: the project it writes for a new backend, and what small backends need."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import (
    BACKEND,
    Status,
    Subject,
    SuiteError,
    plan_op,
    run_case,
)
from coredispatch.conformance.new_backend import write_project
from coredispatch.plugin import ArrayApiBackend, hookimpl

pytestmark = pytest.mark.once

# ---- a new backend ------------------------------------------------------------------------------


def test_names_and_folders_are_checked(tmp_path: Path) -> None:
    for name in ("Cpu", "my-device", "cpu", "class", ""):
        with pytest.raises(SuiteError):
            write_project(name, tmp_path / "x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(SuiteError, match="not an empty folder"):
        write_project("scaffolded", tmp_path / "full")
    (tmp_path / "file").write_text("")
    with pytest.raises(SuiteError, match="cannot write"):
        write_project("scaffolded", tmp_path / "file" / "below")


@pytest.fixture(scope="module")
def project(tmp_path_factory: Any) -> tuple[Path, dict[str, str]]:
    """A project as ``coredispatch new-backend`` writes it, and the environment that has it."""
    folder = write_project("scaffolded", tmp_path_factory.mktemp("new") / "project")
    information = folder / "coredispatch_scaffolded-0.dist-info"  # as if installed
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: coredispatch-scaffolded\nVersion: 0\n"
    )
    (information / "entry_points.txt").write_text(
        "[coredispatch.plugins]\nscaffolded = coredispatch_scaffolded\n"
    )
    settings = {"PYTHONPATH": str(folder), "COREDISPATCH_PLUGINS": "scaffolded"}
    return folder, {**os.environ, **settings}


def test_the_commands_of_its_workflow_are_commands(project: tuple[Path, dict[str, str]]) -> None:
    from coredispatch.conformance.arguments import COMMANDS, parser

    folder, _ = project
    text = (folder / ".github/workflows/conformance.yml").read_text()
    assert "BACKEND: scaffolded" in text
    text = re.sub(r"\$\{\{[^}]*\}\}|\$\w+", "1", text)
    found = re.findall(r"coredispatch conformance ((?:.|\n +--)*)", text)
    assert len(found) == 3
    for command in found:
        chosen = parser(dict.fromkeys(COMMANDS, print)).parse_args(command.split())
        assert chosen.command is print


@pytest.mark.slow
def test_the_written_project_passes_its_own_tests(project: tuple[Path, dict[str, str]]) -> None:
    folder, environment = project
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.slow
def test_the_primitives_it_lists_are_all_that_training_needs(
    project: tuple[Path, dict[str, str]],
) -> None:
    folder, environment = project
    package = folder / "coredispatch_scaffolded"
    listed = set(re.findall(r"^   - `(\w+)\(", (folder / "README.md").read_text(), re.MULTILINE))
    afternoon = Path(__file__).with_name("afternoon.py")
    assert listed == runpy.run_path(str(afternoon))["FUNCTIONS"].keys()
    shutil.copy(afternoon, package)
    with (package / "kernels.py").open("a") as kernels:
        kernels.write(
            "\nfrom .afternoon import FUNCTIONS as MORE\n"
            "KERNELS |= {op: kernel(op, function) for op, function in MORE.items()}\n"
        )

    def run(*arguments: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "coredispatch.cli", *arguments],
            capture_output=True,
            text=True,
            env=environment,
        )

    assert "no operators" in run("ops", "--missing", "scaffolded").stdout
    sampled = (
        *("backend", "softmax", "conv2d", "sort", "getitem", "index_put", "rand", "svd"),
        *("any", "cat", "gather", "flip", "mul"),  # constant dtype rules, numbers, 0-d, writes
    )
    wanted = [option for op in sampled for option in ("--op", op)]
    command = "conformance run --backend scaffolded --level training --jobs 2 --quiet".split()
    done = run(*command, *wanted)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_array_api_backend_is_a_few_lines() -> None:
    class Few(ArrayApiBackend):
        name = "few"
        array_type = np.ndarray
        xp = np

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.backend(Few())

    module = ModuleType("few")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("few", module)
    try:
        other = Subject("few")
        case = next(c for c in plan_op(other, "add") if c.check == 1 and c.dtype == "float32")
        assert run_case(other, case).status is Status.PASS
    finally:
        cd.plugins.unload("few")


@pytest.mark.parametrize(
    ("text", "dtypes"),
    [
        ('dtypes = ["bool", "int64", "float16", "float32"]', {"float16"}),
        ('dtypes = ["bool", "int64", "float32", "bfloat16", "float16"]', {"bfloat16"}),
        ('dtypes = ["bool", "int64", "float32"]', {"-"}),
        ('absent = ["autocast"]', {"-"}),
    ],
)
def test_autocast_is_tried_with_the_half_precision_there_is(
    tmp_path: Path, text: str, dtypes: set[str]
) -> None:
    path = tmp_path / "conformance.toml"
    path.write_text(f"[capabilities]\n{text}\n")
    narrow = Subject("cpu", path)
    cases = [c for c in plan_op(narrow, BACKEND) if c.check == 13]
    assert {c.dtype for c in cases} == dtypes
    # Half precision is optional; a backend that has it and no autocast does not train.
    assert all(c.mandatory for c in cases) or "absent" not in text
    served = {run_case(narrow, c).status for c in cases}
    assert served == {Status.FAIL if dtypes == {"-"} else Status.PASS}
