"""``cd.cpu``: what the heap holds and keeps, and how it is asked to give it back."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.backends.numpy import heap

pytestmark = pytest.mark.skipif(heap.state() is None, reason="the C library keeps no statistics")

MB = 1 << 20


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    before = cd.cpu.get_cache_cap()
    yield
    heap.keep(256 * MB if before is None else before)


def test_arrays_are_counted() -> None:
    gc.collect()
    before = cd.cpu.memory_allocated()
    x = cd.zeros(10 * MB // 4)
    held = cd.cpu.memory_allocated()
    assert 9 * MB < held - before < 11 * MB  # other threads of the process free something, too
    assert cd.cpu.memory_reserved() >= held
    del x
    assert cd.cpu.memory_allocated() - before < MB


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


# In processes of their own: elsewhere a freed block may lie between blocks in use, and other tests
# hold blocks that are mapped one by one.
UNKEPT = """
import coredispatch as cd

MB = 1 << 20

def mapped():
    return cd.cpu.memory_stats()["mapped_bytes.current"]

cd.cpu.set_cache_cap(0)
before = mapped()
x = cd.ones(16 * MB // 4)
assert mapped() >= before + 16 * MB, (before, mapped())
del x
assert mapped() < before + MB, (before, mapped())
"""


def test_nothing_is_kept_under_a_cap_of_0() -> None:
    done = subprocess.run([sys.executable, "-c", UNKEPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PROGRAM = """
import os
import coredispatch as cd

MB = 1 << 20

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

def cached():
    return cd.cpu.memory_stats()["cached_bytes.current"]

cd.cpu.set_cache_cap(64 * MB)
assert cd.cpu.get_cache_cap() == 64 * MB
assert cd.cpu.memory_stats()["cached_bytes.cap"] == 64 * MB
x = cd.ones(16 * MB // 4)
del x
kept = cached()
assert kept >= 15 * MB, kept
y = cd.ones(16 * MB // 4)  # the same memory again
assert cached() <= kept - 15 * MB, cached()
del y
before = resident()
{}
assert resident() <= before - 14 * MB, (before, resident())
"""


@pytest.mark.parametrize("give_back", ["cd.cpu.empty_cache()", "cd.cpu.set_cache_cap(MB)"])
def test_what_is_freed_is_kept_up_to_the_cap_and_given_back_when_asked(give_back: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(give_back)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_views_and_exports_outlive_what_they_are_views_of() -> None:
    x = cd.arange(4 * MB)
    row, array = x[-5:], np.from_dlpack(x[:5])
    del x
    cd.cpu.empty_cache()
    others = [cd.full((4 * MB,), -1) for _ in range(3)]  # would take the memory, were it free
    assert row.tolist() == list(range(4 * MB - 5, 4 * MB))
    assert array.tolist() == [0, 1, 2, 3, 4]
    assert len(others) == 3


def test_threads_free_what_others_made() -> None:
    made: list[Any] = [cd.full((MB,), float(k)) for k in range(8)]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            made[k] = cd.full((MB,), float(k)) + 1
            cd.cpu.empty_cache()
            if made[k].min().item() != k + 1:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_summary_names_everything() -> None:
    summary = cd.cpu.memory_summary()
    for name in cd.cpu.memory_stats():
        assert name in summary
    held = resident()
    peak = cd.cpu.memory_stats()["resident_bytes.peak"]
    assert peak is not None
    assert peak >= held - MB  # the kernel counts in each of its threads, and adds up now and then


@pytest.mark.parametrize("size", [-1, 1.5, True, "64", 2**31])
def test_what_is_no_size_is_refused(size: Any) -> None:
    before = cd.cpu.get_cache_cap()
    with pytest.raises(cd.CoreDispatchError, match=r"cpu\.set_cache_cap: size .* got"):
        cd.cpu.set_cache_cap(size)
    assert cd.cpu.get_cache_cap() == before


def test_another_c_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_glibc", lambda: None)
    cd.cpu.empty_cache()
    for ask in (cd.cpu.memory_stats, cd.cpu.memory_allocated, lambda: cd.cpu.set_cache_cap(1)):
        with pytest.raises(cd.CoreDispatchError, match="C library"):
            ask()


def test_a_users_own_setting_wins() -> None:
    program = "import coredispatch as cd; cd.randn(3); print(cd.cpu.get_cache_cap())"
    for given, wanted in (
        ({}, ("None", "268435456")),
        ({"MALLOC_TRIM_THRESHOLD_": "1"}, ("None",)),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | given, capture_output=True, text=True
        )
        assert done.stdout.strip() in wanted, done.stderr


def test_a_cap_that_was_set_before_the_first_kernel_stays() -> None:
    program = (
        "import coredispatch as cd; cd.cpu.set_cache_cap(12345678); cd.randn(3).exp();"
        "print(cd.cpu.get_cache_cap())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "12345678", done.stderr
