"""Backends that crash, hang, print or cheat, and requests that make no sense: never a lost run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coredispatch.conformance import Status, Subject, SuiteError, plan_op, run_case, shards
from coredispatch.conformance.context import NotRun

pytestmark = pytest.mark.once

HOSTILE = """
import contextlib, os, signal, subprocess, sys, threading, time
from coredispatch.plugin import hookimpl

def neg(x):
    name = x.dtype.name
    if name == "int8":
        os._exit(3)
    if name == "int16":
        time.sleep(600)
    if name == "int32":
        print("noise " * 100_000)
        os.write(1, b"noise on the descriptor")
        os.write(2, b"noise on the other")
    if name == "uint8":
        sys.exit(0)
    if name == "uint16":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "uint32":
        threading.Thread(target=time.sleep, args=(600,)).start()
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if name == "uint64":
        for descriptor in (0, 1, 2):
            with contextlib.suppress(OSError):
                os.close(descriptor)
    return -x

@hookimpl
def coredispatch_register(registrar):
    registrar.kernels("cpu", {"neg": neg}, priority=10**6)
"""


def install(folder: Path, name: str, source: str) -> dict[str, str]:
    """Install ``source`` as plugin ``name``; the environment in which only it is loaded."""
    (folder / f"{name}.py").write_text(source)
    information = folder / f"{name}-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[coredispatch.plugins]\n{name} = {name}\n")
    return {"PYTHONPATH": str(folder), "COREDISPATCH_PLUGINS": name}


def command(*arguments: str, env: dict[str, str] | None = None) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "coredispatch.cli", "conformance", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COREDISPATCH_PLUGINS": "none", **(env or {})},
    )


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: Any) -> dict[str, str]:
    return install(tmp_path_factory.mktemp("hostile"), "hostile_pack", HOSTILE)


@pytest.fixture(scope="module")
def report(hostile: dict[str, str], tmp_path_factory: Any) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("report")
    done = command(
        *"run --backend cpu --op neg --check 9 --check 25 --jobs 2 --timeout 20".split(),
        *("--json", str(folder / "a.json"), "--report", str(folder / "a.html")),
        env=hostile,
    )
    assert done.returncode == 1, done.stderr
    document: dict[str, Any] = json.loads((folder / "a.json").read_text())
    return {**document, "stdout": done.stdout, "html": (folder / "a.html").read_text()}


@pytest.mark.slow
def test_every_way_to_die_is_a_status_of_its_case(report: dict[str, Any]) -> None:
    found = {r["dtype"]: (r["status"], r["message"]) for r in report["results"] if r["check"] == 9}
    assert found["int8"][0] == "crash"
    assert "exit status 3" in found["int8"][1]
    assert found["uint16"][0] == "crash"
    assert "signal 11" in found["uint16"][1]
    assert found["int16"][0] == "timeout"
    assert found["uint8"][0] == "fail"
    assert "SystemExit" in found["uint8"][1]
    # Noise, closed descriptors, threads and children that stay are the backend's own affair.
    assert {found[d][0] for d in ("int32", "int64", "uint32", "uint64")} == {"pass"}
    assert not report["verdict"]["passed"]
    assert "noise" not in report["stdout"]
    assert "VERDICT" in report["stdout"]
    assert "SystemExit" in report["html"]
    assert report["html"].count("<summary>reproducer") == 3  # one for each cause


@pytest.mark.slow
def test_a_crash_is_reproduced_by_a_script_of_its_own(
    report: dict[str, Any], hostile: dict[str, str], tmp_path: Path
) -> None:
    case = next(r["case"] for r in report["results"] if r["status"] == "crash")
    told = command("explain", case, "--backend", "cpu", env=hostile)
    assert told.returncode == 1
    assert "crash" in told.stdout
    assert "last call neg(" in told.stdout
    path = tmp_path / "again.py"
    assert (
        command("repro", case, "--backend", "cpu", "--out", str(path), env=hostile).returncode == 0
    )
    assert "crash: " in path.read_text()
    for env, status in ((hostile, {3, -11}), ({"COREDISPATCH_PLUGINS": "none"}, {0})):
        done = subprocess.run(
            [sys.executable, str(path)], capture_output=True, env={**os.environ, **env}
        )
        assert done.returncode in status, done.stderr


@pytest.mark.slow
def test_a_plugin_that_ends_the_interpreter_when_loaded_is_an_error_that_says_so(
    tmp_path: Path,
) -> None:
    source = "import os, sys; sys.stderr.write('no device\\n'); sys.stderr.flush(); os._exit(3)"
    environment = install(tmp_path, "deadly", source)
    done = command(*"run --backend cpu --op neg --check 25".split(), env=environment)
    assert done.returncode == 2
    assert "crash, exit status 3: no device" in done.stderr
    assert "COREDISPATCH_PLUGINS" in done.stderr


@pytest.mark.slow
def test_a_plugin_that_hangs_when_loaded_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    for name, value in install(tmp_path, "sleepy", "import time; time.sleep(600)").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shards, "START_LIMIT", 2.0)
    with pytest.raises(SuiteError, match="timeout, no progress for 2 s"):
        shards.probe(shards.Options("cpu", limit=1.0))


@pytest.mark.slow
def test_workers_that_never_come_up_end_the_run(tmp_path: Path, monkeypatch: Any) -> None:
    subject = Subject("cpu")
    for name, value in install(tmp_path, "deadly", "import os; os._exit(3)").items():
        monkeypatch.setenv(name, value)
    run = shards.run(subject, shards.Options("cpu", ops=("neg", "add"), jobs=2))
    assert {r.status for r in run.ordered()} == {Status.CRASH}
    assert all("no worker comes up" in r.message for r in run.ordered())


# ---- requests that cannot be served -------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run --backend nonesuch", "there is no backend 'nonesuch'"),
        ("run --backend cpu --level heaven", "there is no level 'heaven'"),
        ("run --backend cpu --profile heaven", "there is no profile 'heaven'"),
        ("run --backend cpu --op nonesuch", "there is no operator 'nonesuch'"),
        ("run --backend cpu --op add --check 99", "there is no check 99"),
        ("run --backend cpu --op add --jobs 0", "must be positive"),
        ("run --backend cpu --op add --check 11", "no case fits"),
        ("run --backend cpu --op add --json /dev/null/x.json", "cannot write /dev/null/x.json"),
        ("run --backend cpu --op add --expectations nowhere.toml", "nowhere.toml"),
        ("list --backend nonesuch", "there is no backend"),
        ("repro add/values:00000000 --backend cpu", "there is no case"),
        ("explain nonesuch --backend cpu", "there is no operator"),
        ("diff nowhere.json nowhere.json", "nowhere.json: No such file"),
        ("run", "--backend"),
        ("nonsense --backend cpu", "unrecognized arguments: nonsense"),
        ("selftest --op nonesuch", "there is no operator 'nonesuch'"),
    ],
)
def test_requests_that_cannot_be_served_end_with_2_and_say_why(arguments: str, said: str) -> None:
    done = command(*arguments.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# ---- the three ways in ask for the same ---------------------------------------------------------


def test_run_may_be_left_out_and_lists_the_cases_that_pytest_runs(tmp_path: Path) -> None:
    short = command(*"--backend cpu --op neg --level boot --quiet".split())
    assert short.returncode == 0
    listed = command(*"list --backend cpu --op neg --level boot".split()).stdout.split()
    (tmp_path / "test_two_lines.py").write_text(
        "from coredispatch.conformance import conformance_test\n"
        "test_conformance = conformance_test('cpu', level='boot', ops=['neg'])\n"
    )
    for arguments in (
        "--pyargs coredispatch.conformance --backend=cpu --conformance-level=boot "
        "--conformance-op=neg",
        str(tmp_path / "test_two_lines.py"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments.split()],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "COREDISPATCH_PLUGINS": "none"},
        )
        assert done.returncode == 0, done.stdout
        ran = {line.partition("[")[2].partition("]")[0] for line in done.stdout.splitlines()}
        assert set(listed) <= ran


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--backend=nonesuch", "there is no backend 'nonesuch'"),
        ("--backend=cpu --conformance-level=heaven", "there is no level 'heaven'"),
        ("--backend=cpu --conformance-op=nonesuch", "there is no operator 'nonesuch'"),
    ],
)
def test_pytest_refuses_what_the_command_refuses(tmp_path: Path, arguments: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        + ["--pyargs", "coredispatch.conformance", *arguments.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COREDISPATCH_PLUGINS": "none"},
    )
    assert done.returncode not in (0, 5)
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("case", "expires", "said"),
    [
        ("neg/values/float32:00000000", "2999-01-01", "names no case of the run"),
        (None, "2999-01-01", "it passes: remove it"),
        (None, "2001-01-01", "its waiver expired on 2001-01-01"),
    ],
)
def test_a_waiver_that_is_wrong_fails_the_run(
    tmp_path: Path, case: str | None, expires: str, said: str
) -> None:
    known = case or command(*"list --backend cpu --op neg --check 25".split()).stdout.split()[0]
    path = tmp_path / "conformance.toml"
    path.write_text(
        f'[[expected_failures]]\ncase = "{known}"\nreason = "x"\nissue = "y"\nexpires = {expires}\n'
    )
    done = command(*"run --backend cpu --op neg --quiet --expectations".split(), str(path))
    assert done.returncode == 1
    assert said in done.stdout


def test_a_backend_cannot_say_that_a_case_need_not_run(monkeypatch: Any) -> None:
    subject = Subject("cpu")
    case = plan_op(subject, "neg")[0]

    def raises(self: Any, array: Any) -> Any:
        raise NotRun("nothing to see here")

    monkeypatch.setattr(type(subject.backend), "to_numpy", raises)
    result = run_case(subject, case)
    assert result.status is Status.FAIL
    assert result.mandatory
