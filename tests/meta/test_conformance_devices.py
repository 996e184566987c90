"""The suite's verdict on the fakes: two devices, and one that computes later."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.inventory as inventory
import coredispatch.plugin as cdp
from coredispatch.conformance import BACKEND, Status, Subject, plan_op, run_case

from . import fake_devices
from .fake_devices import CURRENT, Card, Cards


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the plugin of the fakes is installed, and no other."""
    folder = tmp_path_factory.mktemp("fakes")
    (folder / "fake_devices.py").write_text(Path(__file__).with_name("fake_devices.py").read_text())
    information = folder / "fake_devices-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fake_devices\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[coredispatch.plugins]\nfake_devices = fake_devices\n"
    )
    return {"PYTHONPATH": str(folder), "COREDISPATCH_PLUGINS": "fake_devices"}


def certify(backend: str, level: str, environment: dict[str, str]) -> None:
    options = f"conformance run --backend {backend} --level {level} --jobs 1 --quiet".split()
    done = subprocess.run(
        [sys.executable, "-m", "coredispatch.cli", *options],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{backend} conforms to '{level}'" in done.stdout


@pytest.mark.parametrize("backend", ["cards", "delayed"])
def test_the_fakes_conform(backend: str, installed: dict[str, str]) -> None:
    certify(backend, "boot", installed)


# ---- the second device --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cards() -> Iterator[Subject]:
    cd.plugins.load("fake_devices", fake_devices)
    yield Subject("cards")
    cd.plugins.unload("fake_devices")


def failures(subject: Subject) -> dict[str, str]:
    """What the cases of the second device say at ``operators``: of the backend, and of ``add``."""
    found = {}
    for name in (BACKEND, "add"):
        for case in plan_op(subject, name, "operators", only=(35,)):
            result = run_case(subject, case)
            found[case.id.partition(":")[0]] = result.message
            assert (result.status is Status.PASS) == (not result.message)
    assert len(found) == 6
    return {name: message for name, message in found.items() if message}


def everything_on_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Card.__init__
    monkeypatch.setattr(Card, "__init__", lambda self, array, card: plain(self, array, 0))


def nothing_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Cards.transfer

    def transfer(self: Cards, raw: Any, source: Any, index: int, non_blocking: bool = False) -> Any:
        if source is self:
            return Card(np.zeros_like(raw.array), index)
        return plain(self, raw, source, index, non_blocking)

    monkeypatch.setattr(Cards, "transfer", transfer)


def zeros_on_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = fake_devices._arrays

    def zeros(out: Any) -> Any:
        out = plain(out)
        return fake_devices.each(np.zeros_like, np.ndarray, out) if CURRENT.card == 1 else out

    monkeypatch.setattr(fake_devices, "_arrays", zeros)


@pytest.mark.once
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            everything_on_the_first,
            {"backend/second-device/factories": "is on cards:0, not on cards:1"}
            | {"add/second-device/float32": "is on cards:0, not on cards:1"},
        ),
        (
            nothing_copied,
            {"backend/second-device/transfers": "has other values"}
            | {"backend/second-device/copies": "copy_() from cards:0 has other values"},
        ),
        (
            zeros_on_the_second,
            {"add/second-device/float32": "got 0.0, reference"}
            | {"backend/second-device/random": "another seed gives the same numbers"},
        ),
    ],
)
def test_a_fault_of_the_second_device_is_found(
    fault: Any, said: dict[str, str], cards: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    found = failures(cards)
    for case, part in said.items():
        assert part in found[case]


@pytest.mark.once
def test_the_second_device_is_asked_where_there_is_one(cards: Subject) -> None:
    assert failures(cards) == {}
    assert [c for c in plan_op(Subject("delayed"), BACKEND, "operators") if c.check == 35] == []
    assert plan_op(cards, "gelu", "operators", only=(35,)) == []
    assert plan_op(cards, BACKEND, "boot") == []


# ---- what a backend without kernels of its own, or without views, is asked ----------------------


@pytest.mark.once
def test_copyto_serves_the_forms_in_place(cards: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("copy_", "add_"):
        (case,) = plan_op(cards, name, "training", only=(25,))
        result = run_case(cards, case)
        assert result.status is Status.PASS
        assert result.details["where"].startswith("copyto of the backend")
        assert inventory.operator(name)["backends"]["cards"] == "copyto"
        with monkeypatch.context() as changes:
            changes.delattr(Cards, "copyto")
            assert run_case(cards, case).message == "missing: served by nobody"
            assert inventory.operator(name)["backends"]["cards"] == "missing"


@pytest.mark.once
def test_programs_that_write_to_views_are_not_asked_without_views(
    cards: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = {c.variant: c for c in plan_op(cards, BACKEND, None, ("compiler",))}
    for variant in ("program+written transposed", "open+column written"):
        result = run_case(cards, planned[variant])
        assert result.status is Status.NOT_RUN and not result.blocks
        assert "'cards' has no strided views" in result.message
    assert run_case(cards, planned["program+row written"]).status is Status.PASS
    monkeypatch.setattr(Cards, "views", True)  # a backend with views is refused nothing
    assert run_case(cards, planned["program+written transposed"]).status is Status.FAIL


def detour(raw: Card) -> Card:
    """A kernel that goes through NumPy, for one of the samples."""
    backend: Any = cd.zeros(1, device="cards").backend
    array = backend.to_numpy(raw) if raw.ndim == 1 else fake_devices.touched(raw)
    return Card(-array, raw.card)


@pytest.mark.once
def test_a_detour_through_numpy_is_shown_with_its_line_and_its_call(cards: Subject) -> None:
    pack = ModuleType("detour_pack")
    pack.coredispatch_register = cdp.hookimpl(  # type: ignore[attr-defined]
        specname="coredispatch_register"
    )(lambda registrar: registrar.kernels("cards", {"neg": detour}, priority=10**6))
    cd.plugins.load("detour_pack", pack)
    try:
        (case,) = plan_op(cards, "neg", "training", only=(21,))
        message = run_case(cards, case).message
    finally:
        cd.plugins.unload("detour_pack")
    line = detour.__code__.co_firstlineno + 3
    assert f"to_numpy was called at test_conformance_devices.py:{line} [" in message
    assert re.search(r"\[neg\(float32\[\d+\]", message), "not the sample that was converted"


# ---- a device that computes later ---------------------------------------------------------------


def later(name: str) -> list[tuple[Status, str]]:
    """What check 18 says of the backend."""
    subject = Subject(name)
    results = [run_case(subject, case) for case in plan_op(subject, BACKEND, "full", only=(18,))]
    return [(result.status, result.message) for result in results]


def test_a_device_that_computes_later_is_asked_for_the_order_of_its_work(
    cards: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert later("delayed") == [(Status.PASS, "")] * 2
    for status, message in later("cards"):
        assert status is Status.NOT_RUN and "has a method synchronize(index)" in message

    def overtaking(self: fake_devices.Promise) -> np.ndarray:
        """The newest work before what it is made from."""
        if self.array is None:
            fake_devices.QUEUE.work.clear()
            self.array = np.zeros(self.shape, self.dtype.name)
        return self.array

    monkeypatch.setattr(fake_devices.Promise, "read", overtaking)
    assert [status for status, _ in later("delayed")] == [Status.FAIL] * 2
