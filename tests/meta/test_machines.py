"""The command that stands in for other machines: what it lists, skips and reports."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """``tests/machines/run.py``, with logs in a folder of the test's."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = ROOT / "tests" / "machines" / "run.py"
    spec = importlib.util.spec_from_file_location("machines_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    return module


@pytest.mark.slow
def test_every_setting_can_be_had_or_says_why_not() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "machines" / "run.py"), "--list"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 10
    assert all("can be had here" in line or "skipped: " in line for line in lines), done.stdout
    assert any(line.startswith("busy") and "can be had" in line for line in lines)


def test_a_setting_that_does_not_exist_is_named(machines: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        machines.main(["pdp-11"])
    assert ended.value.code == 2
    assert "there is no setting pdp-11; known: openblas-prescott" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "said"), [(0, "passed"), (1, "FAILED, see logs/other.log")])
def test_what_fails_under_a_setting_fails_the_command(
    machines: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, status: int, said: str
) -> None:
    @contextmanager
    def enter(folder: Path) -> Any:
        yield {"OTHER": str(status)}

    @contextmanager
    def unavailable(folder: Path) -> Any:
        raise machines.Unavailable("it is no PDP-11")
        yield

    made = [machines.Setting("other", "another one", enter)]
    made.append(machines.Setting("none", "none", unavailable))
    program = "import os, sys; print('told'); sys.exit(int(os.environ['OTHER']))"
    monkeypatch.setattr(machines, "SETTINGS", made)
    monkeypatch.setattr(machines, "commands", lambda *a: [[sys.executable, "-c", program]])
    assert machines.main([]) == status
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(said)
    assert second.endswith("skipped: it is no PDP-11")
    assert "told" in (machines.LOGS / "other.log").read_text()


@pytest.mark.slow
def test_the_other_order_is_another_one_and_as_good(tmp_path: Path, machines: Any) -> None:
    stand_ins = sys.modules["stand_ins"]
    program = (
        "import numpy as np; rng = np.random.default_rng(0)\n"
        "for kind in 'fdFD':\n"
        "    a, b = (rng.normal(size=s) + 1j * rng.normal(size=s) for s in ((9, 80), (80, 7)))\n"
        "    a, b = ((x if kind in 'FD' else x.real).astype(kind) for x in (a, b))\n"
        "    for x, y in ((a, b), (b.T, a.T), (a[0], b), (a, b[:, 1]), (a, a.T), (a.T, a)):\n"
        "        made = [np.matmul(x, y) for _ in range(4)]\n"
        "        exact = np.matmul(x.astype('D'), y.astype('D'))\n"
        "        assert all(np.allclose(m, exact, 1e-3, 1e-4) for m in made)\n"
        "    assert len({np.matmul(a, b).tobytes() for _ in range(4)}) > 1\n"
    )
    try:
        with stand_ins.another_order(tmp_path) as variables:
            done = subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                env={**stand_ins.os.environ, **variables},
            )
    except machines.Unavailable as why:
        pytest.skip(str(why))
    assert done.returncode == 0, done.stderr
