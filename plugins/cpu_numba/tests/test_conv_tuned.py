"""``cd.backends.cpu.benchmark``: the fastest algorithm for each convolution, and what is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conv_checks import arrays

import coredispatch as cd
from coredispatch_cpu_numba import cache_place, measured
from coredispatch_cpu_numba.kernels.conv import tuned

pytestmark = pytest.mark.once
F = cd.nn.functional


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place of its own, where nothing was measured."""
    monkeypatch.setattr(measured, "_path", lambda: tmp_path / "fastest.json")
    monkeypatch.setattr(measured, "_found", {})
    monkeypatch.setattr(measured, "_read", False)
    yield tmp_path


def case(groups: int = 1) -> list[cd.Tensor]:
    found = arrays(np.float32, (2, 32, 9, 9), (48, 32 // groups, 3, 3), (48,))
    return [cd.from_numpy(a) for a in found]


def results(x: cd.Tensor, w: cd.Tensor, b: cd.Tensor, groups: int = 1) -> tuple[Any, ...]:
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    out = F.conv2d(x, w, b, padding=1, groups=groups)
    weights = cd.linspace(-1, 1, out.numel()).reshape(out.shape)
    return out.detach(), *cd.autograd.grad((out * weights).sum(), (x, w))


@pytest.mark.parametrize("groups", [1, 2, 16])
def test_results_are_those_of_other_algorithms(place: Path, groups: int) -> None:
    given = case(groups)
    want = results(*given, groups)
    with cd.backends.cpu.flags(benchmark=True):
        for _ in range(2):
            for got, wanted in zip(results(*given, groups), want, strict=True):
                cd.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    assert not cd.backends.cpu.benchmark
    known = {"by default", *tuned.algorithms()}
    kept = json.loads((place / "fastest.json").read_text())["fastest"]
    assert len(kept) == 3  # forward and both gradients
    assert set(kept.values()) <= known


@pytest.mark.parametrize("algorithm", ["by default", *tuned.algorithms()])
def test_what_was_found_serves(
    place: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """Whatever is noted as the fastest is called, and nothing is measured again."""
    called: list[str] = []
    kernels = tuned.algorithms()
    for name, own in kernels.items():
        kernel = own["convolution"]

        def noting(*args: Any, name: str = name, kernel: Any = kernel) -> Any:
            called.append(name)
            return kernel(*args)

        monkeypatch.setitem(own, "convolution", noting)
    monkeypatch.setattr(tuned, "_measure", lambda *_: algorithm)
    x, w, b = case()
    want = F.conv2d(x, w, b)
    called.clear()
    with cd.backends.cpu.flags(benchmark=True):
        got = F.conv2d(x, w, b)
        monkeypatch.setattr(tuned, "_measure", None)
        F.conv2d(x, w, b)
    cd.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert called.count(algorithm) == (0 if algorithm == "by default" else 2)


def test_an_algorithm_that_no_longer_serves_is_passed_over(place: Path) -> None:
    x, w, b = case()
    want = F.conv2d(x, w, b)
    with cd.backends.cpu.flags(benchmark=True):
        F.conv2d(x, w, b)
        (key,) = measured._found
        for name in ("sliding windows", "of another version"):
            measured.keep(key, name)
            cd.testing.assert_close(F.conv2d(x, w, b), want, rtol=1e-4, atol=1e-4)


def test_other_processes_find_it_on_disk(place: Path) -> None:
    measured.keep("one", "shifted planes")
    text = (
        "import sys; from coredispatch_cpu_numba import measured\n"
        "print(measured.best('one'), measured.best('two'), 'numba' in sys.modules)\n"
        "measured.keep('two', 'gathered rows')"
    )
    environment = os.environ | {cache_place.DIRECTORY_VARIABLE: str(place)}
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["shifted", "planes", "None", "False"]
    measured.keep("three", "gathered rows")  # what the other one wrote stays
    kept = json.loads((place / "fastest.json").read_text())["fastest"]
    assert set(kept) == {"one", "two", "three"}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"machine": "another", "fastest": {"one": "x"}}', "\\ud800"]
)
def test_a_file_that_says_nothing_is_replaced(place: Path, content: str) -> None:
    (place / "fastest.json").write_text(content)
    assert measured.best("one") is None
    measured.keep("one", "gathered rows")
    assert json.loads((place / "fastest.json").read_text())["fastest"] == {"one": "gathered rows"}


def test_without_a_place_it_is_kept_in_memory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_path", lambda: None)
    measured.keep("one", "gathered rows")
    assert measured.best("one") == "gathered rows"
    assert list(place.iterdir()) == []


def test_winograd_is_left_out_where_it_is_not_allowed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w, b = case()
    called: list[str] = []
    own = tuned.algorithms()[tuned.WINOGRAD]
    kernel = own["convolution"]
    monkeypatch.setitem(own, "convolution", lambda *args: called.append("it") or kernel(*args))
    with cd.backends.cpu.flags(benchmark=True, allow_winograd=False):
        want = F.conv2d(x, w, b, padding=1)
    assert not called
    with cd.backends.cpu.flags(benchmark=True):  # what was measured without it is another thing
        got = F.conv2d(x, w, b, padding=1)
    assert called
    cd.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert len(measured._found) == 2


def test_forgetting_measures_anew(place: Path) -> None:
    measured.keep("one", "gathered rows")
    measured.forget()
    assert measured.best("one") is None
    assert not (place / "fastest.json").exists()


def test_captured_programs_measure_nothing(place: Path) -> None:
    x, w, b = case()
    compiled = cd.compile(lambda x: F.conv2d(x, w, b).relu())
    with cd.backends.cpu.flags(benchmark=True):
        got = compiled(x)
    assert not measured._found
    cd.testing.assert_close(got, F.conv2d(x, w, b).relu(), rtol=1e-4, atol=1e-4)


def test_settings() -> None:
    cpu = cd.backends.cpu
    with pytest.raises(RuntimeError, match="benchmark expects bool, but got int"):
        cpu.benchmark = 1
    with pytest.raises(RuntimeError, match="allow_winograd expects bool"):
        with cpu.flags(benchmark=True, allow_winograd="yes"):  # type: ignore[arg-type]
            pass
    assert (cpu.benchmark, cpu.allow_winograd) == (False, True)
    with cpu.flags(benchmark=True, allow_winograd=False):
        assert (cpu.benchmark, cpu.allow_winograd) == (True, False)
    assert (cpu.benchmark, cpu.allow_winograd) == (False, True)
