"""No test judges by a clock: a machine may be slow or busy, and the tests pass there too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [f"tests/{kind}" for kind in ("unit", "meta", "compare", "distributed", "integration")]
FOLDERS += ["plugins/*/tests"]
CLOCKS = {"time", "time_ns", "perf_counter", "monotonic", "process_time", "thread_time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
#: functions that wait for a process or a queue: pytest's own timeout ends those that hang
WAITING = {"run", "communicate", "check_call", "check_output", "get"}
IN_TEXT = re.compile(rf"\btime\.({'|'.join(sorted(CLOCKS))})\(")


def judged_by_time(source: str) -> Iterator[tuple[int, str]]:
    """Lines of a test that read a clock, or give a process, a thread or an example its seconds.

    Those of programs that the test holds as a text count as well.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, found[0]) for found in IN_TEXT.finditer(node.value))
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from ((node.lineno, a.name) for a in node.names if a.name in CLOCKS)
        if not isinstance(node, ast.Call):
            continue
        names = {k.arg for k in node.keywords}
        if isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "time" and node.func.attr in CLOCKS:
                yield node.lineno, f"time.{node.func.attr}"
            if node.func.attr in WAITING and "timeout" in names:
                yield node.lineno, f"{node.func.attr}(timeout=)"
            if node.func.attr == "wait" and any(map(_seconds, node.args)):
                yield node.lineno, "wait(seconds)"
        if "deadline" in names:
            yield node.lineno, "deadline="


def _seconds(argument: ast.expr) -> bool:
    """Whether it is a number of seconds; none at all only asks."""
    return isinstance(argument, ast.Constant) and bool(argument.value)


def test_no_test_reads_a_clock() -> None:
    found = []
    paths = {path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py")}
    for path in sorted(paths - {Path(__file__).resolve()}):  # whose lines below are examples
        for line, what in judged_by_time(path.read_text()):
            found.append(f"{path.relative_to(ROOT)}:{line}: {what}")
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import time; start = time.perf_counter()",
        "import time; assert time.monotonic() < 5",
        "from time import process_time",
        "program = 'limit = time.' 'monotonic() + 300'",
        "event.wait(10)",
        "queue.get(timeout=5)",
        "import subprocess; subprocess.run(['a'], timeout=60)",
        "from hypothesis import settings; settings(max_examples=3, deadline=200)",
    ],
)
def test_a_test_that_reads_one_is_found(line: str) -> None:
    assert len([*judged_by_time(line)]) == 1


def test_one_profile_of_hypothesis_is_in_force() -> None:
    """Registered in coredispatch.conformance, loaded by the checkout's conftest.py."""
    assert hypothesis.settings.default.deadline is None
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings.default.suppress_health_check
