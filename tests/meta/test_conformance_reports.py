"""Tests of the suite: what crashes and hangs is reported, reports and reproducers say what ran."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from coredispatch.conformance import (
    Status,
    Subject,
    SuiteError,
    plan_op,
    report,
    run_case,
    shards,
)
from coredispatch.conformance.repro import case_of, script

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("cpu")


# ---- shards -------------------------------------------------------------------------------------

CRASHING = """
import os, time
from coredispatch.plugin import hookimpl
def neg(x):
    print("noise on standard output")
    if x.dtype == "int8":
        os._exit(3)
    if x.dtype == "int16":
        time.sleep(600)
    return -x
@hookimpl
def coredispatch_register(registrar):
    registrar.kernels("cpu", {"neg": neg}, priority=10**6)
"""


@pytest.mark.slow
def test_a_crash_and_a_hang_are_statuses_and_no_lost_run(
    tmp_path: Path, monkeypatch: Any, subject: Subject
) -> None:
    (tmp_path / "crashing_pack.py").write_text(CRASHING)
    information = tmp_path / "crashing_pack-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: crashing-pack\nVersion: 1\n"
    )
    (information / "entry_points.txt").write_text(
        "[coredispatch.plugins]\ncrashing_pack = crashing_pack\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("COREDISPATCH_PLUGINS", "crashing_pack")
    options = shards.Options("cpu", ops=("neg",), checks=(9, 25), jobs=2, limit=25.0)
    run = shards.run(subject, options)
    statuses = {r.dtype: r.status for r in run.ordered() if r.check == 9}
    assert statuses["int8"] is Status.CRASH
    assert statuses["int16"] is Status.TIMEOUT
    assert statuses["int32"] is Status.PASS
    assert len(run.results) == len(run.cases)
    document = report.document(subject, run)
    assert not document["verdict"]["passed"]
    assert "exit status 3" in next(
        r["message"] for r in document["results"] if r["status"] == "crash"
    )


# ---- reports ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def document(subject: Subject) -> dict[str, Any]:
    run = shards.Run(shards.Options("cpu", ops=("neg",)), plan_op(subject, "neg"))
    run.results = {c.id: run_case(subject, c) for c in run.cases}
    return report.document(subject, run)


def test_the_document_follows_its_schema(document: dict[str, Any]) -> None:
    schema = report.schema()
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    validator.validate(json.loads(json.dumps(document)))
    spoiled = {**document, "results": [{**document["results"][0], "status": "fine"}]}
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(spoiled)
    assert set(schema["required"]) <= set(document)
    statuses = set(schema["$defs"]["status"]["enum"])
    assert statuses == {str(s) for s in Status}
    fields = schema["$defs"]["result"]["properties"]
    for result in json.loads(json.dumps(document))["results"]:
        assert set(result) == set(fields)
        assert result["status"] in statuses


def test_a_selection_certifies_nothing(document: dict[str, Any]) -> None:
    assert document["verdict"]["passed"]
    assert not document["verdict"]["complete"]
    assert document["verdict"]["reached"] is None
    assert "certifies no level" in report.summary(document)


def test_html_is_self_contained_and_the_badge_is_svg(document: dict[str, Any]) -> None:
    page = report.page(document)
    assert page.startswith("<!doctype html>")
    assert "http" not in page.replace("http://www.w3.org", "")
    assert report.badge(document).startswith("<svg ")


def test_diff_names_what_changed(document: dict[str, Any]) -> None:
    other = json.loads(json.dumps(document))
    other["results"][0]["status"] = "fail"
    del other["results"][1]
    found = report.difference(document, other)
    assert found["regressed"]
    assert len(found["changed"]) == len(found["deleted"]) == 1
    assert not report.difference(document, document)["regressed"]


def test_a_reproducer_runs_by_itself(subject: Subject, tmp_path: Path) -> None:
    case = next(c for c in plan_op(subject, "add") if c.distribution == "special")
    path = tmp_path / "again.py"
    path.write_text(script(subject, case))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "expected 0" in done.stdout
    assert "status=<Status.PASS" in done.stdout


def test_bad_requests_are_named(subject: Subject) -> None:
    with pytest.raises(SuiteError, match="no backend 'nonesuch'"):
        Subject("nonesuch")
    with pytest.raises(SuiteError, match="no level 'heaven'"):
        plan_op(subject, "add", "heaven")
    with pytest.raises(SuiteError, match="nonesuch"):
        plan_op(subject, "nonesuch")
    with pytest.raises(SuiteError, match="did you mean"):
        case_of(subject, "add/values/float32")
