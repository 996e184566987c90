"""One number of threads for every plugin of the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.backends.numpy import blas_threads
from coredispatch.plugin import hookimpl


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    before = cd.get_num_threads()
    yield
    cd.set_num_threads(before)


class Count(cd.utils.data.Dataset[int]):
    """What a worker process has."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return cd.get_num_threads()


def plugin_with_a_pool(counts: list[int]) -> Any:
    module = types.ModuleType("pooled")

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.thread_pool("pooled", counts.append)

    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    return module


def test_a_plugin_hears_of_every_count_also_of_one_set_before() -> None:
    counts: list[int] = []
    cd.set_num_threads(3)
    cd.plugins.load("pooled", plugin_with_a_pool(counts))
    try:
        assert counts == [3]
        cd.set_num_threads(2)
        assert cd.get_num_threads() == 2
        assert counts == [3, 2]
    finally:
        cd.plugins.unload("pooled")
    cd.set_num_threads(1)
    assert counts == [3, 2]


def test_the_compiled_pack_obeys() -> None:
    pack = pytest.importorskip("coredispatch_cpu_numba")
    if cd.plugins["cpu_numba"].status != "loaded" or not pack.thread_count.SUPPORTED:
        pytest.skip("cpu_numba is not loaded here")
    for count in (2, 1):
        cd.set_num_threads(count)
        assert pack.get_num_threads() == count


@pytest.mark.parametrize("with_threadpoolctl", [True, False])
def test_numpys_blas_obeys(with_threadpoolctl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if with_threadpoolctl:
        pytest.importorskip("threadpoolctl")
    else:
        monkeypatch.setitem(sys.modules, "threadpoolctl", None)
        if blas_threads._own_functions() is None:
            with pytest.warns(UserWarning, match="cannot be told"):
                cd.set_num_threads(1)
            return
    for count in (1, 2):
        cd.set_num_threads(count)
        assert all(line.endswith(f": {count} threads") for line in blas_threads.describe())


@pytest.mark.parametrize(
    ("count", "why"),
    [(0, "positive"), (-1, "positive"), (2**31, "32 bits"), (True, "bool"), (1.0, "float")],
)
def test_what_is_no_number_of_threads_is_refused(count: Any, why: str) -> None:
    before = cd.get_num_threads()
    with pytest.raises(cd.OpError, match=rf"set_num_threads expects .*{why}"):
        cd.set_num_threads(count)
    assert cd.get_num_threads() == before


def test_a_blas_that_cannot_be_told_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    monkeypatch.setattr(blas_threads, "_own_functions", lambda: None)
    with pytest.warns(UserWarning, match="install threadpoolctl"):
        cd.set_num_threads(1)


@pytest.mark.parametrize("function", ["set_num_threads", "set_num_interop_threads"])
@pytest.mark.parametrize("count", [0, -1, "a", 1.5, True, None])
def test_a_count_that_is_none_is_refused(function: str, count: Any) -> None:
    before = cd.get_num_threads()
    with pytest.raises(RuntimeError, match=function):
        getattr(cd, function)(count)
    assert cd.get_num_threads() == before


def test_a_dataloaders_workers_have_one_thread() -> None:
    cd.set_num_threads(2)
    assert [int(b) for b in cd.utils.data.DataLoader(Count(), num_workers=1)] == [1, 1]
    assert cd.get_num_threads() == 2


def in_a_new_process(program: str, **variables: str) -> list[str]:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    run = [sys.executable, "-c", "import coredispatch as cd\n" + program]
    done = subprocess.run(
        run, env=environment | variables, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_environment_gives_the_default() -> None:
    program = "print(cd.get_num_threads(), cd.get_num_interop_threads())"
    assert in_a_new_process(program, OMP_NUM_THREADS="1") == ["1", "1"]
    assert in_a_new_process(program, COREDISPATCH_NUM_THREADS="1", OMP_NUM_THREADS="2")[0] == "1"


def test_interop_threads_are_set_once() -> None:
    program = """
cd.set_num_interop_threads(3)
print(cd.get_num_interop_threads())
try:
    cd.set_num_interop_threads(3)
except RuntimeError as error:
    print("cannot set number of interop threads" in str(error))
"""
    assert in_a_new_process(program) == ["3", "True"]


def test_setting_the_number_warns_of_nothing_where_it_acts() -> None:
    if blas_threads._own_functions() is None and blas_threads.describe() == ["BLAS: not known"]:
        pytest.skip("this BLAS cannot be told")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cd.set_num_threads(1)
