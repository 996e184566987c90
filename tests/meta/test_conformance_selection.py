"""Tests of the suite: what is run of a level, how a run ends and goes on, what is kept of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.conformance import (
    Subject,
    SuiteError,
    changes,
    plan_op,
    report,
    run_case,
    shards,
)
from coredispatch.conformance.case import CHECKS, check_name
from coredispatch.conformance.changes import concerned
from coredispatch.conformance.database import Database
from coredispatch.conformance.levels import BOOT_OPS
from coredispatch.conformance.reached import EVERYWHERE, users_of
from coredispatch.conformance.selection import (
    checks_named,
    operators_named,
    shard_named,
    shard_of,
)

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("cpu")


# ---- what is run --------------------------------------------------------------------------------


def test_checks_are_named_by_number_name_and_pattern() -> None:
    assert checks_named(["3,7", "values"]) == (3, 7, 1)
    assert checks_named(["in-place*"]) == (7,)
    assert checks_named(["tensor layouts", "grad*"]) == (27, 12)
    assert checks_named(None) == ()
    for name, number in ((check_name(n), n) for n in CHECKS):
        assert checks_named([name]) == checks_named([str(number)]) == (number,)
    for wrong, said in (
        ("99", "no check 99"),
        ("value", "did you mean values"),
        ("x*", "no check"),
    ):
        with pytest.raises(SuiteError, match=said):
            checks_named([wrong])


def test_operators_are_named_by_pattern(subject: Subject) -> None:
    found = operators_named(subject, ["conv*,softmax"])
    assert found is not None
    assert {"conv1d", "conv2d", "conv_transpose2d", "softmax"} <= set(found)
    assert all(op.startswith("conv") or op == "softmax" for op in found)
    assert operators_named(subject, []) is None
    assert operators_named(subject, ["exp_", "exp", "sort"]) == ["exp", "sort"]
    with pytest.raises(SuiteError, match="no operator fits 'nonesuch"):
        operators_named(subject, ["nonesuch*"])


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=4), st.integers(1, 60), max_size=30),
    st.integers(1, 9),
)
def test_shards_are_all_of_it_once(sizes: dict[str, int], count: int) -> None:
    planned = {op: list(range(n)) for op, n in sizes.items()}
    parts = [shard_of(planned, (k, count)) for k in range(1, count + 1)]
    assert sorted(op for part in parts for op in part) == sorted(planned)
    assert all(part[op] == planned[op] for part in parts for op in part)
    loads = [sum(map(len, part.values())) for part in parts]
    assert max(loads) - min(loads) <= max(sizes.values(), default=0)


def test_a_shard_is_written_as_a_fraction() -> None:
    assert shard_named("2/8") == (2, 8)
    assert shard_named(None) is None
    for wrong in ("0/8", "9/8", "2", "a/b", "2/", "-1/3"):
        with pytest.raises(SuiteError, match="names no shard"):
            shard_named(wrong)


KERNELS = """
import numpy as np
def helper(x): return x
def total(x): return helper(x).sum()
def kernel(op, f): return f
@kernel("exp", 1)
def e(x): return np.exp(x)
FUNCTIONS = {"add": np.add, "neg": lambda x: -x, "sum": total}
KERNELS = {op: kernel(op, f) for op, f in FUNCTIONS.items()}
"""


@pytest.mark.parametrize(
    ("old", "new", "ops"),
    [
        ("np.add", "np.subtract", {"add"}),
        ("return x\n", "return 2 * x\n", {"sum"}),
        ("np.exp(x)", "np.exp2(x)", {"exp"}),
        ('"neg": lambda x: -x, ', "", {"neg"}),
        ("FUNCTIONS = {", "# a comment\nFUNCTIONS = {", set()),
        ("return f\n", "return lambda *a: f(*a)\n", None),  # all kernels are made of it
        ("import numpy as np", "import cupy as np", None),
        ("return x\n", "return (\n", None),  # no program
    ],
)
def test_a_change_concerns_the_kernels_that_use_it(
    old: str, new: str, ops: set[str] | None
) -> None:
    assert old in KERNELS
    assert concerned(KERNELS, KERNELS.replace(old, new), {"add", "neg", "sum", "exp"}) == ops


@pytest.mark.parametrize(
    ("file", "ops"),
    [
        ("registry/dispatch/table.py", None),  # everything is called through it
        ("ops/indexing/gather_scatter.py", {"gather", "scatter", "scatter_add"}),
        ("../README.md", set()),
        ("../benchmarks/dispatch.py", set()),
    ],
)
def test_a_change_of_the_framework_concerns_those_it_serves(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, file: str, ops: set[str] | None
) -> None:
    path = (Path(cd.__file__).parent / file).resolve()
    assert path.exists()
    monkeypatch.setattr(changes, "_changed_files", lambda home, ref: [(path, "")])
    found, why = changes.changed_operators(subject, "HEAD")
    if ops is None:
        assert found is None
        assert "table.py is used by all" in why
    else:
        assert found is not None
        assert ops <= set(found)
        assert bool(found) == bool(ops)


def test_who_uses_an_operator_is_read_from_the_definitions(subject: Subject) -> None:
    assert {"log_softmax", "logsumexp", "elu"} <= users_of(["exp"])
    assert not users_of(["exp"]) & {"relu", "matmul", "flip", "sort"}
    for op in ("softmax", "layer_norm", "var", "conv2d", "quantile", "gelu", "lu", "cross_entropy"):
        case = next(c for c in plan_op(subject, op) if c.check == 21)
        served = run_case(subject, case).details["served"]
        reached = {entry.partition(":")[0] for entry in served} - {op}
        assert {p for p in reached if op not in users_of([p])} <= EVERYWHERE, op


# ---- the command --------------------------------------------------------------------------------


def command(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "coredispatch.cli", "conformance", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COREDISPATCH_PLUGINS": "none", **(env or {})},
    )


FAULTY = """
import os, sys
from pathlib import Path
from coredispatch.plugin import hookimpl
calls = Path(os.environ["CALLS"])
def neg(x):
    if os.environ.get("WAIT") and calls.exists():
        import time
        time.sleep(600)  # the test ends it
    calls.write_text("called")
    return -x if x.dtype != "int8" else x
@hookimpl
def coredispatch_register(registrar):
    registrar.kernels("cpu", {"neg": neg}, priority=10**6)
"""


@pytest.fixture
def faulty(tmp_path: Path) -> dict[str, str]:
    """The environment with a pack whose ``neg`` is wrong for int8, and can wait for its end."""
    home = tmp_path / "plugins"
    information = home / "faulty_pack-1.dist-info"
    information.mkdir(parents=True)
    (home / "faulty_pack.py").write_text(FAULTY)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty_pack\nVersion: 1\n")
    entry = "[coredispatch.plugins]\nfaulty_pack = faulty_pack\n"
    (information / "entry_points.txt").write_text(entry)
    return {
        "PYTHONPATH": str(home),
        "COREDISPATCH_PLUGINS": "faulty_pack",
        "CALLS": str(tmp_path / "calls"),
    }


RUN = ("run", "--backend", "cpu", "--ops", "neg", "--check", "1,9", "--jobs", "1", "--quiet")


@pytest.mark.slow
def test_what_is_asked_for_is_run_reported_and_kept(tmp_path: Path, faulty: dict[str, str]) -> None:
    first = command(
        *(*RUN, "--database", "runs.sqlite", "--json", "a.json", "--junit", "a.xml"),
        cwd=tmp_path,
    )
    assert first.returncode == 0, first.stderr
    assert "time by check: " in first.stdout
    document = report.read(tmp_path / "a.json")
    assert {r["check"] for r in document["results"]} == {1, 9}
    second = command(*RUN, "--database", "runs.sqlite", cwd=tmp_path, env=faulty)
    assert second.returncode == 1
    assert "one cause" in second.stdout or "causes" in second.stdout
    tree = ElementTree.parse(tmp_path / "a.xml").getroot()
    names = {case.get("name") for case in tree.iter("testcase")}
    assert names == {r["case"] for r in document["results"]}
    changed = command("diff", "--database", "runs.sqlite", "--json", cwd=tmp_path)
    assert changed.returncode == 1
    kinds = {(c["from"], c["to"]) for c in json.loads(changed.stdout)["changed"]}
    assert kinds == {("pass", "fail")}
    by_name = command("diff", "a.json", "2", "--database", "runs.sqlite", "--json", cwd=tmp_path)
    assert json.loads(by_name.stdout)["changed"] == json.loads(changed.stdout)["changed"]
    history = command(
        *("history", "--database", "runs.sqlite", "--report", "history.html"), cwd=tmp_path
    )
    assert history.returncode == 0
    assert "pass -> fail" in history.stdout
    assert "pass -&gt; fail" in (tmp_path / "history.html").read_text()


@pytest.mark.slow
def test_a_run_that_is_ended_leaves_a_report_and_goes_on(
    tmp_path: Path, faulty: dict[str, str]
) -> None:
    arguments = [*RUN, "--resume", "--json", "a.json", "--junit", "a.xml"]
    process = subprocess.Popen(
        [sys.executable, "-m", "coredispatch.cli", "conformance", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **faulty, "WAIT": "1"},
    )
    started = Path(faulty["CALLS"])
    database = tmp_path / "conformance.sqlite"
    while process.poll() is None and not (started.exists() and database.exists()):
        os.sched_yield()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, err
    document = report.read(tmp_path / "a.json")
    assert document["ended"] == "interrupted"
    assert "not run" in out
    missing = [r for r in document["results"] if r["status"] == "not_run"]
    assert missing
    assert "the run ended before it" in missing[0]["message"]
    with Database(database) as held:
        kept = held.statuses(held.rows()[-1].run)
    again = command(*arguments, cwd=tmp_path, env=faulty)
    assert again.returncode == 1, again.stderr
    assert not kept or f"resumed: {len(kept)} results" in again.stderr
    whole = report.read(tmp_path / "a.json")
    assert whole["ended"] == ""
    assert not [r for r in whole["results"] if r["message"].startswith("the run ended")]
    with Database(database) as held:
        assert len(held.rows()) == 1
        assert held.rows()[0].finished


@pytest.mark.slow
def test_the_first_failure_may_end_a_run(tmp_path: Path, faulty: dict[str, str]) -> None:
    done = command(*RUN, "--fail-fast", "--json", "a.json", cwd=tmp_path, env=faulty)
    assert done.returncode == 1, done.stderr
    document = report.read(tmp_path / "a.json")
    assert document["ended"] == "first failure"
    assert document["counts"]["fail"] == 1
    assert document["counts"]["not_run"] >= 1
    assert "first failure after" in done.stderr


@pytest.mark.slow
def test_shards_merge_into_the_verdict_of_the_whole(tmp_path: Path) -> None:
    selected = ("run", "--backend", "cpu", "--level", "boot", "--ops", "neg,exp,add", "--quiet")
    for part in ("1", "2"):
        done = command(*selected, "--shard", f"{part}/2", "--json", f"{part}.json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "certifies no level" in done.stdout
    merged = command("merge", "1.json", "2.json", "--json", "whole.json", cwd=tmp_path)
    assert merged.returncode == 0, merged.stdout + merged.stderr
    whole = report.read(tmp_path / "whole.json")
    parts = [report.read(tmp_path / f"{part}.json") for part in ("1", "2")]
    assert len(whole["results"]) == sum(len(p["results"]) for p in parts)
    lacking = command("merge", "1.json", cwd=tmp_path)
    assert lacking.returncode == 1
    assert "no worker reported it" in lacking.stdout


@pytest.mark.slow
def test_pytest_takes_the_same_selection(tmp_path: Path, subject: Subject) -> None:
    def collected(*arguments: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--pyargs", "coredispatch.conformance", "-q"]
            + ["--collect-only", "--backend=cpu", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "COREDISPATCH_PLUGINS": "none"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if "::test_conformance[" in line]
        return {line.partition("[")[2].rpartition("]")[0] for line in lines}

    listed = command("list", "--backend", "cpu", "--ops", "cum*", "--check", "values,14")
    assert listed.returncode == 0, listed.stderr
    wanted = set(listed.stdout.split())
    arguments = ("--conformance-ops=cum*", "--conformance-check=values,14")
    assert collected(*arguments) == wanted
    assert collected(*arguments, "-k", "cumsum and values") == {
        case for case in wanted if case.startswith("cumsum/values")
    }


# ---- what changed -------------------------------------------------------------------------------

BACKEND = """
import numpy as np
from coredispatch.plugin import ArrayApiBackend, hookimpl

def neg(x):
    return np.negative(x)

OVERRIDES = {"neg": neg, "exp": lambda x: np.exp(x)}

class Versioned(ArrayApiBackend):
    name, array_type, xp = "versioned", np.ndarray, np
    overrides = OVERRIDES

@hookimpl
def coredispatch_register(registrar):
    registrar.backend(Versioned())
"""


@pytest.mark.slow
def test_only_what_changed_since_a_commit_is_listed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    information = tmp_path / "versioned_backend-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: versioned\nVersion: 1\n")
    entry = "[coredispatch.plugins]\nversioned = versioned_backend\n"
    (information / "entry_points.txt").write_text(entry)
    module = tmp_path / "versioned_backend.py"
    module.write_text(BACKEND)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    environment = {"PYTHONPATH": str(tmp_path), "COREDISPATCH_PLUGINS": "versioned"}

    def listed(*more: str) -> Any:
        options = ("--backend", "versioned", "--level", "boot", "--changed-since", "HEAD", *more)
        return command("list", *options, env=environment, cwd=tmp_path)

    same = listed()
    assert same.stdout == "", same.stderr
    unchanged = command(
        *("run", "--backend", "versioned", "--changed-since", "HEAD"), env=environment, cwd=tmp_path
    )
    assert unchanged.returncode == 0
    assert "nothing to run" in unchanged.stdout
    module.write_text(BACKEND.replace("np.negative(x)", "-x"))
    found = {line.partition("/")[0] for line in listed().stdout.split()}
    assert "neg" in found
    assert found == {"neg"} | users_of(["neg"]) & set(BOOT_OPS)
    assert not found & {"exp", "sqrt", "where"}
    module.write_text(BACKEND.replace('"versioned", np.ndarray', '"versioned", object'))
    assert "all operators" in listed().stderr
    refused = command("list", "--backend", "versioned", "--changed-since", "nonesuch", cwd=tmp_path)
    assert refused.returncode == 2


def test_planned_is_what_is_left_of_a_level(subject: Subject) -> None:
    options = shards.Options("cpu", level="boot", ops=("a*",), checks=(25,))
    assert {c.check for cases in shards.planned(subject, options).values() for c in cases} == {25}
