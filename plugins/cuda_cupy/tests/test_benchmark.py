"""The benchmark runs: measured over the stand-in, which is no measurement, and rehearsed."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

import coredispatch as cd

FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch):
    if not (FOLDER / "gpu.py").exists():
        pytest.skip("the benchmark is not beside the plugin")
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu

    yield gpu
    for name in ("gpu", "gpu_cases"):
        sys.modules.pop(name, None)


def test_cases_are_measured_and_printed(gpu, stand_in, on_host, monkeypatch, capsys):
    if not stand_in.supports_bfloat16:
        pytest.skip("the benchmark needs bfloat16")
    monkeypatch.setattr(cd.cuda.graph, "default_capture_stream", None)
    monkeypatch.setattr(gpu, "_SAMPLES", 1)
    options = argparse.Namespace(only="matmul,MLP", seconds=0.0)
    missing = []
    rows = gpu.measured(options, cd, cd, scale=0, missing=missing)
    assert missing == []
    assert capsys.readouterr().err == ""
    assert [row.group for row in rows].count("training bf16") == 3
    assert {row.group for row in rows} == {"small calls", "matmul", "training bf16"}
    assert all(row.ratio > 0 for row in rows)
    gpu.print_head()
    gpu.print_rows(rows)
    shown = capsys.readouterr().out
    assert "training bf16: MLP as a graph" in shown
    assert "training bf16: MLP compiled as a graph" in shown


def test_what_fails_is_named_and_the_rest_is_measured(gpu, stand_in, monkeypatch, capsys):
    if not stand_in.supports_bfloat16:
        pytest.skip("the benchmark needs bfloat16")

    def broken(lib, device, scale):
        raise MemoryError("too large")

    case = gpu.kernels()[0]
    cases = [gpu.Case("small calls", "broken", 1.0, broken), case]
    monkeypatch.setattr(gpu, "kernels", lambda: cases)
    monkeypatch.setattr(gpu, "trainings", list)
    options, missing = argparse.Namespace(only="", seconds=0.0), []
    rows = gpu.measured(options, cd, cd, scale=0, missing=missing)
    assert missing == ["small calls broken"]
    assert [row.name for row in rows] == [case.name]
    assert "small calls broken: failed: MemoryError: too large" in capsys.readouterr().err


def test_the_verdict_names_what_misses_its_aim_and_what_was_not_measured(gpu, capsys):
    rows = [
        gpu.Row("matmul", "slow", 2.0, 1.0, 1.03),
        gpu.Row("training bf16", "large", 1.0, 1.0, 1.0, 3.0, 2.0),
        gpu.Row("training bf16", "good", 1.0, 1.0, 1.0, 2.0, 2.0),
    ]
    gpu.print_verdict(rows, ["attention causal bf16"])
    assert capsys.readouterr().out == (
        "within their aims: 1 of 3 lines measured\n"
        "not within: matmul: slow (above); training bf16: large (peak above)\n"
        "not measured: attention causal bf16\n"
    )


def test_what_is_stopped_says_what_it_has(gpu, monkeypatch, capsys, tmp_path):
    """SIGINT, which `make gpu-bench` sends when the time is over, after the first line."""
    lib = types.SimpleNamespace(
        cuda=types.SimpleNamespace(is_available=lambda: True, get_device_name=lambda: "none"),
        __version__="0",
    )

    def measured(options, ours, theirs, done, missing):
        missing += ["attention causal bf16"]
        done([gpu.Row("matmul", "first", 1.0, 1.0, 1.03)])
        raise KeyboardInterrupt

    file = tmp_path / "rows.json"
    monkeypatch.setattr(gpu, "missing_device", lambda: None)
    monkeypatch.setattr(gpu, "libraries", lambda: (lib, lib))
    monkeypatch.setattr(gpu, "same_settings", lambda *libs: None)
    monkeypatch.setattr(gpu, "measured", measured)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--json", str(file)])
    assert gpu.main() == 1
    assert "stopped: the time is over\nwithin their aims: 1 of 1" in capsys.readouterr().out
    assert json.loads(file.read_text())[0]["name"] == "first"


def test_both_libraries_are_measured_under_the_same_settings(gpu):
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    program = (
        "import gpu, torch, coredispatch as cd\n"
        "seen = []\n"
        "for change in (lambda *libs: None, gpu.same_settings):\n"
        "    change(cd, torch)\n"
        "    for lib in (cd, torch):\n"
        "        cudnn = lib.backends.cudnn\n"
        "        seen.append((lib.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32,\n"
        "                     cudnn.benchmark, cudnn.deterministic))\n"
        "assert seen == [(False, True, False, False)] * 4, seen\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_a_device_it_says_so_and_measures_nothing(gpu, monkeypatch, capsys):
    if cd.cuda.is_available():
        pytest.skip("there is a device here")
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    assert gpu.main() == 1
    assert "nothing was measured: coredispatch has no CUDA device here" in capsys.readouterr().out


def test_it_is_rehearsed_on_the_cpu(gpu):
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    # In a process of its own: what PyTorch brings along stays out of this one.
    command = [sys.executable, str(FOLDER / "gpu.py"), "--rehearse"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all cases agree on the CPU\n"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("gpu-tests", "no CUDA device"),
        ("gpu-conformance", "has no device"),
        ("gpu-bench", "nothing was measured"),
    ],
)
def test_each_part_of_make_gpu_says_what_is_missing(part: str, text: str, tmp_path: Path) -> None:
    """The commands as they are written, up to where they ask for a device."""
    makefile = FOLDER.parent / "Makefile"
    if not makefile.exists() or shutil.which("make") is None:
        pytest.skip("there is no Makefile, or no make")
    if cd.cuda.is_available():
        pytest.skip("there is a device")
    arguments = (f"PYTHON={sys.executable}", f"GPU_REPORT={tmp_path}", "ARGS=-q")
    done = subprocess.run(
        ["make", "--no-print-directory", part, *arguments],
        cwd=makefile.parent,
        capture_output=True,
        text=True,
    )
    assert text in done.stdout + done.stderr


def test_the_parts_of_make_gpu_end_within_ten_minutes() -> None:
    makefile = FOLDER.parent / "Makefile"
    if not makefile.exists():
        pytest.skip("there is no Makefile")
    text = makefile.read_text(encoding="utf-8")
    parts = re.search(r"for part in ([\w -]+);", text)
    assert parts is not None
    limits = []
    for part in parts.group(1).split():
        recipe = re.search(rf"^{part}:\n((?:\t.*\n)+)", text, re.MULTILINE)
        assert recipe is not None, part
        limit = re.search(r"timeout (?:-s INT )?-k (\d+) (\d+) ", recipe.group(1))
        assert limit is not None, part
        limits.append(sum(map(int, limit.groups())))
    assert len(limits) == 3 and sum(limits) <= 530  # and the installation: ten minutes


def test_tests_are_loaded_where_there_is_pytest_alone() -> None:
    """A machine with a GPU may have no more; one file that needs more would end the collection."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    known = {file.stem for file in files} | sys.stdlib_module_names
    known |= {"coredispatch", "coredispatch_cuda_cupy", "numpy", "ml_dtypes", "pytest"}
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            others = {name.partition(".")[0] for name in names} - known
            assert not others, f"{file.name}: write pytest.importorskip({others.pop()!r})"


def test_packages_are_copied_where_none_can_be_built(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "install_copy.py"
    if not script.exists():
        pytest.skip("the script is not beside the tests")
    subprocess.run([sys.executable, str(script), str(tmp_path / "gpu")], check=True)
    program = (
        "import coredispatch as cd, coredispatch.conformance as suite\n"
        "print(cd.__file__, suite.__file__)\n"
        "print([cd.plugins[name].status for name in ('cuda_cupy', 'sparse', 'quant')])\n"
        "import coredispatch_cuda_cupy.cuda as kernels; print(kernels.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "gpu")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count(str(tmp_path / "gpu")) == 3 and done.stdout.count("loaded") == 3
    for folder in ("coredispatch_cuda_cupy/cuda", "coredispatch/conformance/template"):
        assert any((tmp_path / "gpu" / folder).iterdir())
    assert not list((tmp_path / "gpu").rglob("*.so"))


def test_cases_that_fail_keep_no_level_from_running(tmp_path: Path) -> None:
    """The recipe with a program in Python's place that ends as the suite does."""
    makefile = FOLDER.parent / "Makefile"
    if not makefile.exists() or shutil.which("make") is None:
        pytest.skip("there is no Makefile, or no make")
    program = tmp_path / "python"
    levels = {}
    for code in (1, 2):
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls{code}\nexit {code}\n')
        program.chmod(0o755)
        arguments = (f"PYTHON={program}", f"GPU_REPORT={tmp_path}")
        command = ["make", "--no-print-directory", "gpu-conformance", *arguments]
        done = subprocess.run(command, cwd=makefile.parent, capture_output=True, text=True)
        assert done.returncode != 0
        levels[code] = (tmp_path / f"calls{code}").read_text().count("--level")
    assert levels == {1: 3, 2: 1}  # no device: the next level has none either
