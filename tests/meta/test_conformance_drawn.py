"""Runs with a fresh seed: what Hypothesis draws, how a finding is shrunk, and what it leaves."""

from __future__ import annotations

import math
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import Case, Result, Status, Subject, generation, plan_op, run_case
from coredispatch.conformance.case import DRAWN
from coredispatch.conformance.context import Context
from coredispatch.conformance.repro import compose
from coredispatch.plugin import hookimpl

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("cpu")


@contextmanager
def served_by(op: str, kernel: Any) -> Iterator[None]:
    """``kernel`` in the place of the embedded one."""

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.kernels("cpu", {op: kernel}, priority=10**9)

    module = ModuleType("faulty")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("faulty", module)
    try:
        yield
    finally:
        cd.plugins.unload("faulty")


def drawn(subject: Subject, op: str) -> Case:
    return next(c for c in plan_op(subject, op, drawn=True) if c.variant == DRAWN)


def judged(subject: Subject, op: str, seed: int) -> tuple[Result, Context]:
    case, metadata = drawn(subject, op), subject.metadata(op)
    context = Context(subject, case, metadata, seed)
    return run_case(subject, case, metadata, seed, context), context


def wrong_in_five_dimensions(a: Any, b: Any) -> Any:
    """Addition, a bit off where no operator definition has a sample."""
    with np.errstate(all="ignore"):
        total = np.add(a, b)
    return total + total.dtype.type(1) if total.ndim == 5 and total.dtype.kind in "fiu" else total


def test_a_fault_that_only_a_drawn_shape_meets_is_caught_and_shrunk(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "SHRINKING", math.inf)  # the smallest, however long it takes
    with served_by("add", wrong_in_five_dimensions):
        # Cases about packs ask for the pack's own kernel.
        covered = [
            c for c in plan_op(subject, "add") if c.check in (1, 3, 5) and "+" not in c.variant
        ]
        assert {run_case(subject, c).status for c in covered} == {Status.PASS}
        findings = [judged(subject, "add", seed) for seed in (1, 2, 3)]
        result, context = next((r, c) for r, c in findings if r.status is Status.FAIL)
        shapes = [np.shape(a) for a in context.sample.args]
        assert max(map(len, shapes)) == 5
        assert max(np.prod(s) for s in shapes) == 1, "the smallest example has one element"
        path = tmp_path / "repro.py"
        path.write_text(compose(context, str(result.status), result.message))
        assert "fresh seed" in path.read_text()
        monkeypatch.setitem(sys.modules, "hypothesis", None)  # the program must not need it
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
        assert ended.value.code
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert not ended.value.code


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.01])
def test_a_finding_is_told_when_the_time_for_shrinking_ends(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(generation, "SHRINKING", seconds)

    def wrong(a: Any, b: Any) -> Any:
        return np.add(a, b) + 1 if a.size else np.add(a, b)

    with served_by("add", wrong):
        for seed in (1, 2, 3):
            result, _ = judged(subject, "add", seed)
            assert result.status is Status.FAIL
            assert "did not fail again" not in result.message


def test_an_empty_dimension_does_not_make_room_for_long_ones() -> None:
    assert generation._extent((0, 2, 257, 257, 257)) == 2 * 257**3


def test_the_seed_alone_decides_what_is_drawn(subject: Subject) -> None:
    class Told(Context):
        def placed(self, sample: Any) -> Any:
            placed = super().placed(sample)
            calls.append(self.shown())
            return placed

    seen = []
    for seed in (7, 7, 8):
        calls: list[str] = []
        case, metadata = drawn(subject, "sum"), subject.metadata("sum")
        result = run_case(subject, case, metadata, seed, Told(subject, case, metadata, seed))
        assert result.status is Status.PASS
        assert result.details["examples"] >= 10
        assert result.details["redrawn"] > 0
        seen.append(calls)
    assert seen[0] == seen[1] != seen[2]


def test_what_cannot_be_drawn_is_no_pass(subject: Subject) -> None:
    result, _ = judged(subject, "randn", 1)
    assert result.status is Status.NOT_RUN
    assert "random" in result.message


def test_only_runs_with_a_fresh_seed_have_drawn_cases(subject: Subject) -> None:
    assert not [c for c in plan_op(subject, "add") if c.variant == DRAWN]


def test_a_kernel_cannot_have_its_examples_thrown_away(subject: Subject) -> None:
    def never(a: Any, b: Any) -> Any:
        hypothesis.reject()

    with served_by("add", never):
        assert judged(subject, "add", 1)[0].status is Status.FAIL


def test_a_warning_of_numpy_fails(subject: Subject) -> None:
    case = next(c for c in plan_op(subject, "log") if c.check == 8 and c.dtype == "float32")
    assert run_case(subject, case).status is Status.PASS
    with served_by("log", lambda x: np.log(x)):
        result = run_case(subject, case)
    assert result.status is Status.FAIL
    assert "RuntimeWarning" in result.message


def command(*arguments: str, without: str = "") -> Any:
    program = (
        f"import sys; sys.modules.update({{m: None for m in {without.split()!r}}})\n"
        "from coredispatch.conformance.cli import main\n"
        f"sys.exit(main({list(arguments)!r}))"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "COREDISPATCH_PLUGINS": "none"},
    )


def test_the_command_draws_and_prints_the_seed() -> None:
    done = command("run", "--backend", "cpu", "--op", "neg", "--fresh-seed", "5", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fresh seed 5 (again: --fresh-seed 5)" in done.stdout
    assert "drawn for 1 operators" in done.stdout
    plain = command("run", "--backend", "cpu", "--op", "neg", "--jobs", "1", without="hypothesis")
    assert plain.returncode == 0
    assert "fresh seed" not in plain.stdout


def test_without_hypothesis_the_command_says_how_to_get_it() -> None:
    run = ("run", "--backend", "cpu", "--op", "neg", "--fresh-seed")
    case = drawn(Subject("cpu"), "neg").id
    for arguments in (run, ("repro", case, "--backend", "cpu", "--seed", "5")):
        done = command(*arguments, without="hypothesis")
        assert done.returncode == 2
        assert "coredispatch[conformance]" in done.stderr


@pytest.mark.parametrize("seed", ["-1", "0"])
def test_a_fresh_seed_is_a_positive_number(seed: str) -> None:
    done = command("run", "--backend", "cpu", "--op", "neg", f"--fresh-seed={seed}")
    assert done.returncode == 2
    assert "positive" in done.stderr


@pytest.mark.parametrize("feature", ["out", "rng-state", "threads", "dlpack"])
def test_what_is_declared_absent_must_be_refused(
    subject: Subject, feature: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coredispatch.conformance.checks import absences

    path = tmp_path / "conformance.toml"
    path.write_text(f'[capabilities]\nabsent = ["{feature}"]\n')
    declared = Subject("cpu", path)
    (case,) = (c for c in plan_op(declared, "backend") if c.variant == f"absent+{feature}")
    assert case.mandatory
    assert run_case(declared, case).status is Status.FAIL  # it is served

    def refuse(context: Context) -> None:
        raise cd.CoreDispatchError("there is none")

    number, _ = absences.ABSENCES[feature]
    monkeypatch.setitem(absences.ABSENCES, feature, (number, refuse))
    result = run_case(declared, case)
    assert result.status is Status.UNSUPPORTED
    assert result.mandatory  # the level is not reached
