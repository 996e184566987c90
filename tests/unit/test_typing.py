"""What type checkers see of the public names: a strict user's program, and its mistakes."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).with_name("typing_sample.py")
STUBS = sorted(str(path) for path in (ROOT / "coredispatch").rglob("*.pyi"))

# They share a cache, which makes them quick.
pytestmark = [pytest.mark.xdist_group("mypy"), pytest.mark.once]


def mypy(*files: str) -> str:
    """What ``mypy --strict`` says, as a user's project would call it: without our settings."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-error-summary"]
    command += ["--follow-imports=silent", "--cache-dir", str(ROOT / ".mypy_cache" / "users")]
    return subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True).stdout


def test_a_strict_users_program_has_the_types_it_says() -> None:
    assert mypy(str(SAMPLE)) == ""


def test_the_program_runs() -> None:
    done = subprocess.run([sys.executable, str(SAMPLE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_stubs_themselves_are_strict() -> None:
    assert len(STUBS) >= 7
    assert mypy(*STUBS) == ""


def test_pyright_agrees(tmp_path: Path) -> None:
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    settings = {"include": [str(SAMPLE)], "extraPaths": [str(ROOT)], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [pyright, "--pythonpath", sys.executable, "-p", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


#: lines that a type checker refuses
MISTAKES = [
    "x.shape = (3,)",
    "x.max(1).value",
    "x.softmaxx(0)",
    "x.grad.zero_()",
    "x.item().shape",
    "x.to(1.5)",
    "x + 'one'",
    "x.view(1.5)",
    "F.relu('x')",
    "F.no_such_function(x)",
    "F.max_pool1d(x, 2, return_indices=True).shape",
    "nn.Linear('four', 3)",
    "nn.Lineer(4, 3)",
    "cd.zeros(2, dtype=3)",
    "cd.float33",
    "cd.linalg.svd(x).V",
    "twice(x, times='often')",
    "twice(x).upper()",
    "compiled('x')",
    "compiled(x).upper()",
    "scripted(x, often=2)",
    "tripled(1)",
    "schedules.StepLR(1, 2)",
]


def test_mistakes_are_found_and_nothing_else() -> None:
    lines = [
        "import coredispatch as cd",
        "import coredispatch.nn.functional as F",
        "import coredispatch.optim.lr_scheduler as schedules",
        "from coredispatch import nn",
        "from coredispatch.plugin import Tensor, composite",
        "@composite",
        "def twice(self: Tensor, times: int = 2) -> Tensor:",
        "    return self * times",
        "@cd.compile",
        "def compiled(x: Tensor, times: int = 1) -> Tensor:",
        "    return x * times",
        "@cd.jit.script",
        "def scripted(x: Tensor, times: int = 1) -> Tensor:",
        "    return x * times",
        '@cd.library.custom_op("typing::tripled", mutates_args=())',
        "def tripled(x: Tensor) -> Tensor:",
        "    return x * 3",
        "def program(x: cd.Tensor) -> None:",
        *(f"    {line}" for line in MISTAKES),
    ]
    path = ROOT / ".mypy_cache" / "mistakes.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    numbers = re.findall(r":(\d+): error: ", mypy(str(path)))
    assert {lines[int(number) - 1].strip() for number in numbers} == set(MISTAKES)


def test_what_is_no_derivative_rule_is_annotated() -> None:
    """In ops, mypy cannot demand it of all functions but the rules."""
    bare = []
    for path in sorted((ROOT / "coredispatch" / "ops").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            rule = any(".vjp" in ast.unparse(decorator) for decorator in node.decorator_list)
            a = node.args
            arguments = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
            named = [x for x in arguments if x is not None and x.arg not in ("self", "cls")]
            full = node.returns is not None and all(x.annotation is not None for x in named)
            if not rule and not full:
                bare.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert bare == []
