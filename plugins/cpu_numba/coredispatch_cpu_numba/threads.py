"""The helper threads: the caller works, and threads that are awake help.

Numba's ``prange`` ends in a barrier that waits for every thread of an OpenMP team. NumPy's
OpenBLAS keeps its own threads spinning for tens of milliseconds after each matrix product, and
a team member that shares a core with one of them holds up the barrier. Measured on two cores:
``exp`` over 262,144 float32 right after a matrix product takes 59 us serially, 4,500 us with
``prange``. OpenMP also ends a process that forks and then uses it again.

Here the work is cut into parts that are claimed one at a time from an atomic counter. The
caller claims too, so it never waits for a helper that has not started; it waits only for parts
that a helper is in the middle of. A helper looks for the next job for about 0.1 ms, then sleeps
on a futex. The caller of a long job wakes sleepers at once; else it does the first part alone,
and wakes them only if its duration says that there is work left for them. After a fork the child
starts helpers of its own. A second Python thread that comes while a job is running does its work
by itself.

Needs futexes, so Linux; elsewhere everything runs in the caller's thread.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types

from . import thread_count
from .atomics import (
    atomic_add,
    atomic_load,
    atomic_store,
    call,
    compare_exchange,
    cycles,
    futex_wait,
    futex_wake,
    pause,
    sched_getcpu,
    sched_setaffinity,
    sched_yield,
)
from .building import build, compiled

__all__ = ["address", "prepare", "run"]

# Byte offsets of the words of a pool, each written by different threads on its own cache line.
_LOCK, _JOB, _CLAIMED, _ACTIVE, _SLEEPING, _OPEN = 0, 64, 128, 192, 256, 320
_TASK, _ARGUMENTS, _COUNT, _GRAIN, _LIMIT, _STOP = 384, 392, 400, 408, 416, 424
_CALLER_CPU, _HELPERS = 448, 456  # where the last caller ran; how many helpers there are
_MISSED, _LAST = 464, 472  # work done without sleeping helpers, and when
_CPUS, _MASK = 512, 512 + 128  # bit masks of CPUs: this process's; those left to the helpers
_MASK_BYTES = 128
_THREADS = 512 + 256  # the system's numbers of the helper threads
_MAX_HELPERS = thread_count.MOST
_BYTES = _THREADS + 8 * _MAX_HELPERS
_SPINS = 8000  # looks at the job number before going to sleep, some 12 ns each
_WORTH_WAKING = 150_000  # cycles of work left; a wake-up costs the caller some 30,000
_RUN = 300_000  # cycles: jobs that follow each other within this time are one run
_PATIENCE = 2000  # looks at a helper's progress before yielding the CPU to it


@compiled(nogil=True)
def _claim(pool, task, arguments, count, grain, side):
    """Do the next part from the front (``side`` 0) or the back (1); False if none is left.

    A thread that works on the same end of its arrays call after call finds them in its cache.
    One word holds how many parts either side has claimed, 32 bits each.
    """
    parts = (count + grain - 1) // grain
    claimed = atomic_add(pool + _CLAIMED, 1 << (32 * side))
    front, back = claimed & 0xFFFFFFFF, claimed >> 32
    if front + back >= parts:
        return False
    lo = (parts - 1 - back if side else front) * grain
    call(task, arguments, lo, min(count, lo + grain))
    return True


@compiled(nogil=True)
def _make_room(pool, cpu):
    """Confine the helpers to CPUs other than the caller's.

    Left alone, a helper is woken on the CPU of the caller, takes it away from the caller, and
    stays there for many milliseconds while another CPU is idle.
    """
    atomic_store(pool + _CALLER_CPU, cpu)
    words = _MASK_BYTES // 8
    for i in range(words):
        mask = atomic_load(pool + _CPUS + 8 * i)
        if i == cpu // 64:
            mask &= ~(1 << (cpu % 64))
        atomic_store(pool + _MASK + 8 * i, mask)
    for i in range(atomic_load(pool + _HELPERS)):
        sched_setaffinity(atomic_load(pool + _THREADS + 8 * i), _MASK_BYTES, pool + _MASK)


def _help(pool, index):
    """What helper ``index`` does for as long as its pool is open."""
    seen = 0
    while atomic_load(pool + _STOP) == 0:
        spins = 0
        job = atomic_load(pool + _JOB)
        while job == seen and spins < _SPINS:
            pause()
            spins += 1
            job = atomic_load(pool + _JOB)
        if job == seen:
            atomic_add(pool + _SLEEPING, 1)
            futex_wait(pool + _JOB, seen)
            atomic_add(pool + _SLEEPING, -1)
            continue
        seen = job
        # First show yourself, then look whether the job is still open. The caller closes it,
        # then looks for helpers: one of the two sees the other.
        atomic_add(pool + _ACTIVE, 1)
        if atomic_load(pool + _OPEN) == 1 and index < atomic_load(pool + _LIMIT):
            task, arguments = atomic_load(pool + _TASK), atomic_load(pool + _ARGUMENTS)
            count, grain = atomic_load(pool + _COUNT), atomic_load(pool + _GRAIN)
            while _claim(pool, task, arguments, count, grain, 1):
                pass
        atomic_add(pool + _ACTIVE, -1)


def _set(pool, offset, value):
    """Write one word and rouse the helpers, who may be waiting for it."""
    atomic_store(pool + offset, value)
    atomic_add(pool + _JOB, 1)
    futex_wake(pool + _JOB, 1 << 30)


@compiled(nogil=True)
def _consider_waking(pool, start, parts_left):
    """Wake the helpers if this job, or the run of jobs it belongs to, has work for them."""
    now = cycles()
    left = parts_left * (now - start)
    if start - atomic_load(pool + _LAST) < _RUN:
        left += atomic_load(pool + _MISSED)
    if left > _WORTH_WAKING:
        futex_wake(pool + _JOB, parts_left)
        left = 0
    atomic_store(pool + _MISSED, left)
    atomic_store(pool + _LAST, now)


@compiled(nogil=True)
def run(pool, task, arguments, count, grain):
    """Do ``task(arguments, lo, hi)`` for parts of ``grain`` that cover ``[0, count)``.

    Args:
        pool: the address of a pool, 0 for none; one more where sleepers are woken at once
        task: the address of a C function
        arguments: the address it is given
    """
    at_once = pool & 1
    pool -= at_once
    if pool == 0 or not compare_exchange(pool + _LOCK, 0, 1):
        call(task, arguments, 0, count)
        return
    cpu = sched_getcpu()
    if cpu != atomic_load(pool + _CALLER_CPU):
        _make_room(pool, cpu)
    atomic_store(pool + _TASK, task)
    atomic_store(pool + _ARGUMENTS, arguments)
    atomic_store(pool + _COUNT, count)
    atomic_store(pool + _GRAIN, grain)
    atomic_store(pool + _CLAIMED, 0)
    atomic_store(pool + _OPEN, 1)
    atomic_add(pool + _JOB, 1)
    start = cycles()
    if at_once == 1 and atomic_load(pool + _SLEEPING) > 0:
        futex_wake(pool + _JOB, (count - 1) // grain)
    more = _claim(pool, task, arguments, count, grain, 0)
    if at_once == 0 and atomic_load(pool + _SLEEPING) > 0:
        _consider_waking(pool, start, (count - 1) // grain)
    while more:
        more = _claim(pool, task, arguments, count, grain, 0)
    atomic_store(pool + _OPEN, 0)
    spins = 0
    while atomic_load(pool + _ACTIVE) > 0:
        spins += 1
        if spins < _PATIENCE:
            pause()
        else:
            sched_yield()
    atomic_store(pool + _LOCK, 0)


class _Pool:
    """The helpers of this process and the memory they share with callers."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()
        self.memory = np.zeros(_BYTES + 64, np.uint8)
        start: int = self.memory.ctypes.data
        self.address = (start + 63) // 64 * 64

    def words(self, offset: int, count: int = 1) -> Any:
        """A view of ``count`` words of the shared memory."""
        first = self.address - self.memory.ctypes.data + offset
        return self.memory[first : first + 8 * count].view(np.int64)

    def admit(self, helpers: int) -> None:
        """Start what is missing of ``helpers`` helpers, and let no more than these work."""
        with self.lock:
            for index in range(len(self.threads), helpers):
                thread = threading.Thread(
                    target=_compiled(_help, 2),
                    args=(self.address, index),
                    name=f"coredispatch-cpu-numba-{index}",
                    daemon=True,
                )
                thread.start()
                self.threads.append(thread)
            count = len(self.threads)
            self.words(_THREADS, count)[:] = [thread.native_id for thread in self.threads]
            mask = sum(1 << cpu for cpu in os.sched_getaffinity(0))
            self.words(_CPUS, _MASK_BYTES // 8)[:] = np.frombuffer(
                mask.to_bytes(_MASK_BYTES, "little"), np.int64
            )
            self.words(_CALLER_CPU)[0] = -1
            self.words(_HELPERS)[0] = count
        _compiled(_set, 3)(self.address, _LIMIT, helpers)

    def stop(self) -> None:
        """End the helpers, before the interpreter takes away the code they run."""
        if self.threads:
            _compiled(_set, 3)(self.address, _STOP, 1)
            for thread in self.threads:
                thread.join(1.0)


@cache
def _compiled(function: Callable[..., None], arity: int) -> Callable[..., None]:
    signature, name = types.void(*[types.intp] * arity), f"threads.{function.__name__}"
    entry: Callable[..., None] = build(function, signature, name, for_python=True).entry_point
    return entry


def prepare() -> None:
    """Compile what helpers run, where there are to be any."""
    if thread_count.wanted > 1:
        _compiled(_help, 2)
        _compiled(_set, 3)


_pool = _Pool()
_admitted = 0


def address() -> int:
    """The address of the pool with as many helpers as are wanted; 0 for none."""
    global _admitted
    helpers = thread_count.wanted - 1
    if helpers != _admitted:
        _pool.admit(helpers)
        _admitted = helpers
    return _pool.address if helpers else 0


def _after_fork() -> None:
    """A child has no helpers, and inherits the memory as it was, perhaps in the middle of a job."""
    global _pool, _admitted
    _pool, _admitted = _Pool(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(lambda: _pool.stop())
