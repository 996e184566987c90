"""The self-test's own gates, and that its lists hold what they must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.conformance.selftest as selftest
from coredispatch.conformance import Subject
from coredispatch.conformance.selftest import controls, curated, exploits, settings
from coredispatch.conformance.selftest.classes import CLASSES
from coredispatch.conformance.selftest.generated import EFFECTS, TRIGGERS, generate
from coredispatch.conformance.selftest.mutants import Mutant
from coredispatch.conformance.selftest.verdict import LEAST, gates
from coredispatch.registry import TABLE

#: faults that real backends and frameworks had, each of which must be among the curated ones
KNOWN_FAULTS = {
    "left-aligned broadcast",
    "drops the tail at n % 4",
    "ignores transpose",
    "integer division stays integer",
    "int32 accumulator",
    "E[x^2] - E[x]^2",
    "no max-subtract in softmax",
    "max drops NaN",
    "where by multiplication",
    "clone aliases",
    "view copies",
    "out= strides ignored",
    "result cache keyed by pointer",
    "JIT key lacks the dtype",
    "shared scratch buffer",
    "silent fallback",
    "dropout tail is not scaled",
    "CSR empty-row shift",
    "rounds half away from zero",
    "wraps instead of saturating",
    "wrong key priority",
    "mask not restored after an exception",
    "memo survives unregister",
    "only the first argument's keys read",
    "tensor lists ignored",
    "version counter not bumped",
    "double backward detached",
    "autocast cache outlives a weight update",
}


def run(*arguments: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "coredispatch.conformance.cli", "selftest", *arguments],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "COREDISPATCH_PLUGINS"},
    )


def test_every_known_fault_is_planted_and_says_how_it_must_be_noticed() -> None:
    mutants = {m.name: m for m in curated(Subject("cpu"))}
    assert mutants.keys() >= KNOWN_FAULTS
    assert all(m.checks for m in mutants.values())
    assert {"wrong dtype", "extra dim", "1 %", "1e-4", "2^-17", "first element zero"} < set(EFFECTS)
    assert {"input mutated", "alias flipped", "buffer reused", "stale second call"} < set(EFFECTS)
    assert {"mixed dtype", "broadcast", "-0", "subnormal", "integer extreme"} < set(TRIGGERS)
    assert all(m.says or m.checks for m in exploits())


def test_generated_mutants_do_not_depend_on_the_run() -> None:
    subject = Subject("cpu")
    first, second = ([m.name for m in generate(subject, "sum")] for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first) == 8


def entry(outcome: str, why: str = "") -> dict[str, str]:
    return {"name": "a fault", "outcome": outcome, "why": why}


@pytest.mark.parametrize(
    ("report", "hold"),
    [
        ({"curated": [entry("caught")]}, True),
        ({"curated": [entry("caught"), entry("survived", "explained")]}, False),
        ({"curated": [entry("absent")]}, False),
        ({"exploits": [entry("caught"), entry("survived")]}, False),
        ({"generated": [entry("caught")] * 97 + [entry("survived", "explained")] * 3}, True),
        ({"generated": [entry("caught")] * 97 + [entry("survived")] * 3}, False),
        ({"generated": [entry("caught")] * 96 + [entry("survived", "explained")] * 4}, False),
        ({"generated": [entry("caught"), entry("equivalent")]}, True),
        ({"controls": [entry("accepted")]}, True),
        ({"controls": [entry("accepted"), entry("refused")]}, False),
        ({"controls": [entry("accepted"), entry("equivalent", "rounds the same")]}, True),
        ({"controls": [entry("equivalent", "rounds the same")]}, False),
    ],
)
def test_the_gates_are_conjunctions(report: Any, hold: bool) -> None:
    text, passed = gates(report)
    assert passed is hold
    assert text.endswith("GATES HOLD" if hold else "GATES DO NOT HOLD")


@pytest.mark.parametrize(("count", "hold"), [(LEAST, True), (LEAST - 1, False)])
def test_a_whole_run_counts_enough_generated_mutants(count: int, hold: bool) -> None:
    report: dict[str, list[dict[str, Any]]] = {"generated": [entry("caught")] * count}
    report["generated"] += [entry("equivalent")] * 100
    text, passed = gates(report, whole=True)
    assert passed is hold
    assert ("only" in text) is not hold
    assert gates(report)[1]


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_of_generated_mutants_names_operators_that_it_has_mutants_for(name: str) -> None:
    subject, made = Subject("cpu"), CLASSES[name]
    unknown = set(made.operators) - set(dir(cd.ops))
    assert not unknown
    found = {op: made.generate(subject, op) for op in made.operators}
    names = [m.name for mutants in found.values() for m in mutants]
    assert len(names) == len(set(names)) >= 40
    assert [m.name for op in found for m in made.generate(subject, op)] == names
    assert sum(not mutants for mutants in found.values()) <= 5


def test_what_no_case_tries_survives_and_what_changes_nothing_is_equivalent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault whose trigger no input meets is a hole of the checks, whatever it would do."""
    judged = []
    for met in (0, 3):
        idle = Mutant("idle", "floor", lambda correct, raws: correct(*raws), ops=("floor",))
        idle.details["effect"], idle.met = "options", met
        monkeypatch.setattr(selftest, "_mutants", lambda kind, idle=idle: [idle])
        judged.append(selftest.judge("generated", 0)["outcome"])
    assert judged == ["survived", "equivalent"]


@pytest.mark.parametrize(
    ("differs", "outcome"), [("here or there", "equivalent"), ("everywhere", "refused")]
)
def test_a_control_that_rounds_as_the_kernel_does_says_so(
    monkeypatch: pytest.MonkeyPatch, differs: str, outcome: str
) -> None:
    same = Mutant(
        "the kernel itself", "floor", lambda correct, raws: correct(*raws), ops=("floor",)
    )
    same.details["differs"] = differs
    monkeypatch.setattr(selftest, "_mutants", lambda kind: [same])
    judged = selftest.judge("controls", 0)
    assert judged["outcome"] == outcome
    text, _ = gates({"controls": [judged, entry("accepted")]})
    assert f"controls: {outcome}: the kernel itself: {judged['why']}" in text


def one_by_one(terms: Any) -> Any:
    """The sum over the first dimension, in its order, each step rounded."""
    total = np.zeros_like(terms[0])
    for term in terms:
        total = total + term
    return total


def plain_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / np.expand_dims(one_by_one(np.moveaxis(e, dim, 0)), dim)


def plain_log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    shifted = x - x.max(dim, keepdims=True)
    total = one_by_one(np.moveaxis(np.exp(shifted), dim, 0))
    return shifted - np.log(np.expand_dims(total, dim))


def plain_variance(x: Any, *rest: Any) -> Any:
    mean = one_by_one(x) / x.dtype.type(x.size)
    return one_by_one((x - mean) ** 2) / x.dtype.type(x.size - 1)


#: operators in elementary operations, each rounded as IEEE 754 says: no library's own order
PLAIN = {
    "sum": lambda x, *rest: one_by_one(x),
    "mean": lambda x, *rest: one_by_one(x) / x.dtype.type(x.size),
    "var": plain_variance,
    "matmul": lambda a, b: one_by_one(a.T[::-1, :, None] * b[::-1, None, :]),
    "linear": lambda x, w, b: one_by_one(x.T[::-1, :, None] * w.T[::-1, None, :]) + b,
    "exp": np.exp,
    "softmax": plain_softmax,
    "log_softmax": plain_log_softmax,
}


@pytest.mark.parametrize(
    "control", [c for c in controls() if "differs" in c.details], ids=lambda c: c.name
)
def test_a_control_differs_from_a_kernel_written_out(control: Any) -> None:
    """Whatever library the embedded kernel is made of, it cannot make every control void."""
    for seed in range(8):  # a single number may round to the same one
        rng = np.random.default_rng(seed)
        sizes = {
            "matmul": [(5, 50), (50, 7)],
            "linear": [(5, 50), (7, 50), (7,)],
            "softmax": [(5, 50)],
            "log_softmax": [(5, 50)],
        }.get(control.op, [(300,)])
        arrays = [rng.normal(size=size).astype(np.float32) for size in sizes]
        raws = (*arrays, 1, None) if "softmax" in control.op else (*arrays,)
        result = control.mutation(PLAIN[control.op], raws)
        np.testing.assert_allclose(result, PLAIN[control.op](*raws), rtol=1e-3, atol=1e-4)
    assert control.fired


def test_the_selftest_runs_without_packs_and_interpreted() -> None:
    found = settings({"COREDISPATCH_INTERPRETED": "0", "A": "b"})
    layouts = {plugin for _, plugin in TABLE.snapshot.layouts.values()}
    assert found == {
        "COREDISPATCH_INTERPRETED": "1",
        "COREDISPATCH_PLUGINS": ",".join(sorted(layouts)) or "none",
        "A": "b",
    }


def test_mutants_of_one_operator_are_caught(tmp_path: Path) -> None:
    done = run("--op", "floor", "--json", str(tmp_path / "a.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GATES HOLD" in done.stdout
    report = json.loads((tmp_path / "a.json").read_text())
    count = len(report["generated"])
    assert f"{count}/{count}" in done.stderr
    assert report["passed"]
    assert {e["outcome"] for e in report["generated"]} <= {"caught", "equivalent"}


@pytest.mark.slow
def test_curated_mutants_exploits_and_controls_pass_their_gates(tmp_path: Path) -> None:
    kinds = "--kind curated --kind exploits --kind controls --quiet".split()
    done = run(*kinds, "--json", str(tmp_path / "a.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "a.json").read_text())
    assert {e["outcome"] for e in report["curated"] + report["exploits"]} == {"caught"}
    # Which ones round as the embedded kernel does is the machine's business, and said.
    assert {e["outcome"] for e in report["controls"]} <= {"accepted", "equivalent"}
    assert all(e["why"] for e in report["controls"] if e["outcome"] == "equivalent")


def test_every_explained_survivor_is_a_fault_that_is_made() -> None:
    subject = Subject("cpu")
    made = {
        mutant.name
        for name in {explained.partition(":")[0] for explained in selftest.EXPLAINED}
        for of in CLASSES.values()
        for mutant in of.generate(subject, name)
    }
    assert set(selftest.EXPLAINED) <= made
