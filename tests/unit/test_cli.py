"""The command line: readable, and the same details as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_info_tells_versions_form_and_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "info")
    assert text.startswith(f"coredispatch {cd.__version__}\n")
    assert "hot modules  compiled" in text or "hot modules  interpreted: " in text
    details = json.loads(run(capsys, "info", "--json"))
    assert details["version"] == cd.__version__
    assert {"cpu", "meta"} <= {backend["name"] for backend in details["backends"]}
    assert "autograd" in details["layers"]
    assert details["ops"]["primitive"] >= 45
    assert details["ops"]["composite"] >= 120
    loaded = {plugin["name"] for plugin in details["plugins"] if plugin["status"] == "loaded"}
    assert {"numpy", "autograd"} <= loaded


def test_info_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(run(capsys, "info", "--summary").splitlines()) == 1


def test_ops_lists_who_serves_what(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "ops")
    assert text.splitlines()[0].startswith("operator")
    listed = {op["name"]: op for op in json.loads(run(capsys, "ops", "--json"))}
    assert listed["add"]["kind"] == "primitive"
    assert listed["add"]["backends"]["cpu"] == "native"
    assert "add_" not in listed
    missing = json.loads(run(capsys, "ops", "--missing", "cpu", "--json"))
    assert missing == [], "the embedded backend has every primitive"


def test_one_op_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "ops", "add")
    assert text.startswith("add(self: Tensor")
    details = json.loads(run(capsys, "ops", "add", "--json"))
    assert details["derivative"] == "vjp"
    assert details["inplace"] == "add_"
    kernels = {kernel["key"]: kernel for kernel in details["kernels"]}
    assert kernels["cpu"]["plugin"]
    assert details["declared"].endswith(".py:" + details["declared"].rsplit(":")[-1])


def test_explain_walks_down_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "explain", "add", "--keys", "autograd,cpu")
    assert "autograd > cpu" in text
    details = json.loads(run(capsys, "explain", "add", "--keys", "autograd,cpu", "--json"))
    assert details["keys"] == ["autograd", "cpu"]
    assert details["provenance"]


def test_warmup_asks_every_plugin_that_compiles(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plugin(name: str, status: str = "loaded", **hooks: Any) -> SimpleNamespace:
        return SimpleNamespace(name=name, status=status, module=SimpleNamespace(**hooks))

    def warmup(report: Any) -> str:
        report(1, 2, "first")
        report(2, 2, "second")
        return "2 kernels"

    def fails(report: Any) -> str:
        raise RuntimeError("no directory is writable")

    others = [plugin("plain"), plugin("broken", "failed", coredispatch_warmup=fails)]
    monkeypatch.setattr(cd, "plugins", others)
    assert run(capsys, "warmup") == "no plugin compiles anything\n"
    monkeypatch.setattr(cd, "plugins", [*others, plugin("pack", coredispatch_warmup=warmup)])
    assert run(capsys, "warmup") == "pack: 2 kernels\n"
    assert json.loads(run(capsys, "warmup", "--json")) == {"pack": "2 kernels"}
    monkeypatch.setattr(cd, "plugins", [plugin("pack", coredispatch_warmup=fails)])
    with pytest.raises(SystemExit, match="pack: no directory is writable"):
        main(["warmup"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ops", "addd"], "there is no operator 'addd'"),
        (["explain", "add", "--keys", "gpu"], "there is no key 'gpu'"),
        (["ops", "--missing", "gpu"], "there is no backend 'gpu'\n  fix: known: cpu"),
    ],
)
def test_errors_go_to_stderr(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_a_wrong_command_line_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["explain", "add"])
    assert stop.value.code == 2
    assert "--keys" in capsys.readouterr().err


def test_without_a_command_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"info", "ops", "explain", "conformance"} <= set(run(capsys).split())
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"coredispatch {cd.__version__}\n"


@pytest.mark.parametrize("width", [50, 80])
@pytest.mark.parametrize("command", [("info",), ("ops",), ("ops", "softmax")])
def test_a_terminal_s_lines_are_not_broken_in_words(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    width: int,
) -> None:
    whole = run(capsys, *command)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    fitted = run(capsys, *command)
    for line in fitted.splitlines():
        assert len(line) <= width or len(line.split()) == 1  # a path alone on its line
    assert set(fitted.split()) <= set(whole.split())
    if command[0] == "ops":
        assert {"add", "native"} <= set(fitted.split()) or "cpu" in fitted.split()


def test_as_a_module() -> None:
    command = [sys.executable, "-m", "coredispatch", "info", "--summary"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("coredispatch ")
