"""The suite's verdict on the fakes: two devices, and one that computes later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


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
