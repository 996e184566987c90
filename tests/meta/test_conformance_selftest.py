"""The self-test's own gates, and that its lists hold what they must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coredispatch.conformance import Subject
from coredispatch.conformance.selftest import curated, exploits, settings
from coredispatch.conformance.selftest.generated import EFFECTS, TRIGGERS, generate
from coredispatch.conformance.selftest.verdict import gates

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
        timeout=600,
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
        ({"generated": [entry("caught")] * 19 + [entry("survived", "explained")]}, True),
        ({"generated": [entry("caught")] * 19 + [entry("survived")]}, False),
        ({"generated": [entry("caught")] * 18 + [entry("survived", "explained")]}, False),
        ({"generated": [entry("caught"), entry("equivalent")]}, True),
        ({"controls": [entry("accepted")]}, True),
        ({"controls": [entry("accepted"), entry("refused")]}, False),
    ],
)
def test_the_gates_are_conjunctions(report: Any, hold: bool) -> None:
    text, passed = gates(report)
    assert passed is hold
    assert text.endswith("GATES HOLD" if hold else "GATES DO NOT HOLD")


def test_the_selftest_runs_without_packs_and_interpreted() -> None:
    assert settings({"COREDISPATCH_INTERPRETED": "0", "A": "b"}) == {
        "COREDISPATCH_INTERPRETED": "1",
        "COREDISPATCH_PLUGINS": "sparse,quant",
        "A": "b",
    }


def test_mutants_of_one_operator_are_caught(tmp_path: Path) -> None:
    done = run("--op", "floor", "--json", str(tmp_path / "a.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GATES HOLD" in done.stdout
    assert "8/8" in done.stderr
    report = json.loads((tmp_path / "a.json").read_text())
    assert report["passed"]
    assert {e["outcome"] for e in report["generated"]} <= {"caught", "equivalent"}


@pytest.mark.slow
def test_curated_mutants_exploits_and_controls_pass_their_gates(tmp_path: Path) -> None:
    kinds = "--kind curated --kind exploits --kind controls --quiet".split()
    done = run(*kinds, "--json", str(tmp_path / "a.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "a.json").read_text())
    assert {e["outcome"] for e in report["curated"] + report["exploits"]} == {"caught"}
    assert {e["outcome"] for e in report["controls"]} == {"accepted"}
