"""Compiling in the background, and beforehand: a cold cache makes nobody wait."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from coredispatch_cpu_numba import background, cache_place, warmup
from coredispatch_cpu_numba.background import NotReady, later, patient

pytestmark = pytest.mark.once

_PROGRAM = """
import os, time
import numpy as np
import coredispatch as cd
from coredispatch_cpu_numba import background
from coredispatch_cpu_numba.kernels.elementwise import pointwise

x = cd.linspace(-3, 3, 50000)
first = x.erf()  # not in the cache: NumPy's serves
assert background.active is {active}
loops = pointwise.KERNELS["erf"].__closure__
child = os.fork() if {fork} else None
if child == 0:  # the compiler is at work in the parent
    assert x.erf().shape == x.shape and float(x.exp().sum()) > 0
    os._exit(0)
if child is not None:
    assert os.waitpid(child, 0)[1] == 0
if {wait}:
    while background.busy():
        time.sleep(0.02)
    compiled = [c.cell_contents for c in loops if isinstance(c.cell_contents, dict)]
    assert any(compiled), "erf was never compiled"
    second = x.erf()
    np.testing.assert_allclose(first.numpy(), second.numpy(), rtol=1e-5)
print("done")
"""


def run(place: str, background: str = "1", **choices: Any) -> str:
    """The program's output in a process of its own, with its cache at ``place``."""
    choices = {"active": True, "fork": False, "wait": True} | choices
    environment = os.environ | {
        cache_place.DIRECTORY_VARIABLE: place,
        "COREDISPATCH_BACKGROUND": background,
        "COREDISPATCH_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(**choices)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_numpy_serves_until_the_kernel_is_ready(tmp_path: Path) -> None:
    assert run(str(tmp_path)) == "done"
    assert list(tmp_path.glob("elementwise.pointwise.erf*"))


def test_a_program_may_end_and_fork_while_something_is_compiled(tmp_path: Path) -> None:
    assert run(str(tmp_path), wait=False, fork=hasattr(os, "fork")) == "done"


_FORK_WHILE_A_JOB_LOGS = """
import os, sys, threading
from coredispatch_cpu_numba import background

started, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)
assert "logging" not in sys.modules
import logging  # takes its lock before a fork, and before what was registered above runs

def job():
    started.set()
    forking.wait(1)
    logging.getLogger("anything")  # as Numba does, and what it imports

try:
    background.later("job", job)
except background.NotReady:
    pass
started.wait()
child = os.fork()
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_does_not_wait_for_a_job_that_waits_for_the_fork() -> None:
    program = [sys.executable, "-c", _FORK_WHILE_A_JOB_LOGS]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.stdout.strip() == "0", done.stderr


def test_no_directory_is_needed(tmp_path: Path) -> None:
    """An empty name turns the disk cache off; a path that cannot be made does, too."""
    assert run("", wait=False) == "done"
    (tmp_path / "file").touch()
    assert run(str(tmp_path / "file" / "below"), wait=False) == "done"


def test_waiting_on_request(tmp_path: Path) -> None:
    """The first call compiles where the environment says so."""
    assert run(str(tmp_path), background="0", active=False) == "done"


_CAPTURED = """
import sys
import numpy as np
import coredispatch as cd
from coredispatch_cpu_numba import background

x = cd.linspace(-3, 3, 50000).view(500, 100)
before = background.busy()
program = cd.compile(lambda x: cd.softmax(x, -1), backend="cpu_numba")
first = program(x)
assert sys.getprofile() is None and background.busy() == before
np.testing.assert_allclose(first.numpy(), program(x).numpy(), rtol=1e-5)
"""


@pytest.mark.parametrize("background", ["0", "1"])
def test_a_captured_call_has_the_program_compiled_only(tmp_path: Path, background: str) -> None:
    """NumPy serves the call; where calls are to wait for their kernels, it waits as others do."""
    environment = os.environ | {
        cache_place.DIRECTORY_VARIABLE: str(tmp_path),
        "COREDISPATCH_BACKGROUND": background,
    }
    program = [sys.executable, "-c", _CAPTURED]
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("graph.*"))
    assert bool(list(tmp_path.glob("activation.softmax.*"))) is (background == "0")


def test_a_kernel_that_is_not_ready_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next kernel serves; in place and with ``out=`` as well."""

    def kernel(x: int, out: Any = None) -> int:
        if x < 0:
            raise NotReady("kernel")
        return x

    assert patient(kernel)(3) == 3
    assert patient(kernel)(-3) is NotImplemented
    assert patient(kernel)(-3, out=1) is NotImplemented
    with pytest.raises(TypeError):  # no other error is swallowed
        patient(kernel)("3")


def test_what_fails_in_the_background_is_told_to_the_caller() -> None:
    """The second call is not put off: it compiles by itself, and raises what there is to raise."""

    def fails() -> None:
        raise ValueError("no such instruction")

    with pytest.raises(NotReady):
        later("a job that fails", fails)
    with background._queue.working:
        pass
    while background.busy():
        pass
    later("a job that fails", fails)


def test_warmup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop of a module for every dtype, by several processes, with a report of each."""
    monkeypatch.setenv(cache_place.DIRECTORY_VARIABLE, str(tmp_path))
    cache_place.directory.cache_clear()
    reports: list[tuple[int, int, str]] = []
    try:
        line = warmup.run(lambda *report: reports.append(report), ("float32",), "reduction.scans")
        assert not cache_place.is_warm()  # that takes everything
        cache_place.mark_warm()
        assert cache_place.is_warm()
    finally:
        cache_place.directory.cache_clear()
    wanted = warmup.jobs(("float32",), "reduction.scans")
    assert wanted and line == f"{len(wanted)} kernels in {tmp_path}"
    assert sorted(name for *_, name in reports) == sorted(f"{m}.{n} {d}" for m, n, d in wanted)
    assert [done for done, *_ in reports] == list(range(1, len(wanted) + 1))
    for _, name, _ in wanted:
        assert list(tmp_path.glob(f"reduction.scans.{name}.f.*.nbi"))
    assert len(warmup.jobs(only="reduction")) > len(warmup.jobs(only="reduction.scans"))
    with pytest.raises(ValueError, match=r"no loops are called 'scan'.*reduction\.scans"):
        warmup.jobs(only="scan")
    assert len(warmup.jobs()) > 200


def test_warmup_can_compile_every_job() -> None:
    """Each is a loop of its module, or a function that the module compiles itself."""
    jobs = warmup.jobs()
    assert len(set(jobs)) == len(jobs)
    for place, name, _ in jobs:
        module = import_module(f"coredispatch_cpu_numba.loops.{place}")
        if name in getattr(module, "FUNCTIONS", ()):
            assert callable(module.compile_function), (place, name)
        else:
            assert name in module.LOOPS, (place, name)


def test_warmup_without_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache_place.DIRECTORY_VARIABLE, "")
    cache_place.directory.cache_clear()
    try:
        with pytest.raises(RuntimeError, match=cache_place.DIRECTORY_VARIABLE):
            warmup.run(lambda *report: None)
    finally:
        cache_place.directory.cache_clear()


_COUNTED = """
import warnings
import scipy.linalg  # its import enters a block, too
from numba.core import errors

entered = []
enter = warnings.catch_warnings.__enter__
warnings.catch_warnings.__enter__ = lambda self: entered.append(1) or enter(self)
catch = errors.WarningsFixer.catch_warnings
import coredispatch as cd

x = cd.linspace(-3, 3, 50000)
assert cd.compile(lambda x: x.erf().softmax(0))(x).sum().isclose(cd.ones(()))
assert x.erf().shape == x.shape
assert errors.WarningsFixer.catch_warnings is catch
print(len(entered))
"""


def test_the_filters_of_warnings_are_left_alone_while_kernels_are_compiled(tmp_path: Path) -> None:
    """They are the process's: two threads that save and restore them leave those of one behind."""
    environment = os.environ | {
        cache_place.DIRECTORY_VARIABLE: str(tmp_path),
        "COREDISPATCH_BACKGROUND": "0",
    }
    command = [sys.executable, "-c", _COUNTED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "0", done.stderr
    assert list(tmp_path.glob("elementwise.pointwise.erf*"))
