"""The main job: the demo trains, quantizes, plots, and says what it was given wrongly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environments import ROOT

DEMO = ROOT / "examples" / "digits.py"

pytest.importorskip("sklearn")
pytest.importorskip("tqdm")


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as its user does; warnings of other packages' making stay warnings."""
    command = [sys.executable, str(DEMO), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def accuracy(output: str, what: str) -> float:
    """The percentage on the line that starts like this."""
    (line,) = [line for line in output.splitlines() if line.startswith(f"held-out digits, {what}")]
    return float(line.rpartition(" ")[2].rstrip("%"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1"])
def test_at_least_97_percent_of_held_out_digits_in_float_and_in_int8(seed: str) -> None:
    pytest.importorskip("coredispatch_quant")
    done = demo("--seed", seed)
    assert done.returncode == 0, done.stderr
    assert accuracy(done.stdout, "float32 on cpu") >= 97
    assert accuracy(done.stdout, "int8 on cpu") >= 97
    lines = done.stderr.splitlines()
    assert len(lines) == 12 and lines[-1].startswith("epoch 12 of 12: loss 0.0"), done.stderr
    served = done.stdout.partition("Who served")[2]
    assert any("cross_entropy" in line and "cpu" in line for line in served.splitlines())
    assert any("quantized_conv2d" in line and "quant" in line for line in served.splitlines())


@pytest.mark.slow
def test_mixed_precision_and_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "out.png"
    done = demo("--amp", "--epochs", "2", "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    assert accuracy(done.stdout, "mixed precision on cpu") > 80
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "tpu"), "there is no device 'tpu'; known: cpu"),
        (("--backend", "nonsense"), "there is no device 'nonsense'; known: cpu"),
        (("--device", "cpu:7"), "no device cpu:7"),
        (("--device", "cpu", "--backend", "meta"), "--backend meta contradicts --device cpu"),
        (("--device", "meta"), "a meta tensor has no data"),
        (("--epochs", "0"), "--epochs must be at least 1"),
        (("--batch-size", "0"), "--batch-size must be at least 2"),
        (("--lr", "nan"), "--lr must be positive"),
        (("--plot", "no/such/folder/out.png"), "there is no folder no/such/folder"),
    ],
)
def test_what_it_cannot_do_it_says_at_once(arguments: tuple[str, ...], message: str) -> None:
    done = demo(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
