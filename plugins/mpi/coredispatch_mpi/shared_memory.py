"""``all_reduce`` among a few ranks of one machine, through memory that all of them see.

MPI moves each element through its own buffers more than once. Here a rank puts what the others
combine into the shared memory, combines its own part of all ranks' elements, and takes the other
parts from there. An array goes through in chunks, of which three are under way at once:

    phase   0        1        2        3        4
    chunk 0 put in   combine  take
    chunk 1          put in   combine  take
    chunk 2                   put in   combine  take

Between two phases the ranks meet: each counts its meetings in the memory, and waits until the
others have counted as many. A meeting also shows that what a rank wrote before it is there for the
others, which holds on processors that keep the order of stores (x86-64); other machines, and those
without ``memfd_create``, leave the work to MPI.

At the first meeting of a call the ranks see what the others are about to combine. Where that
differs, all of them raise.
"""

from __future__ import annotations

import itertools
import mmap
import os
import platform
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coredispatch.plugin import Communicator, LateError, Request
from coredispatch_mpi.calls import KEPT, WIDTH, Calls
from coredispatch_mpi.waiting import advance, moving, wait_until

__all__ = ["SharedMemory", "shared_memory"]

_MOST_RANKS = 4  # with more of them each has too many others to meet
_CHUNK = 1024 * 1024  # bytes of an array that go through together
_SMALL = 16 * 1024  # bytes up to which each rank combines the whole: one meeting instead of two
_LINE = 64  # bytes that no two ranks write to
_OPERATIONS = list(Communicator.operations)


def shared_memory(comm: Any, poll: Callable[[], Any]) -> SharedMemory | None:
    """Memory of all ranks of `comm`; None on all of them where one of them cannot have it.

    All ranks call it. The memory has no name in the file system and goes with the processes.
    `poll` lets MPI go on with what is under way.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    if not 2 <= size <= _MOST_RANKS:
        return None
    able = hasattr(os, "memfd_create") and platform.machine().lower() in ("x86_64", "amd64")
    made = _make(_length(size)) if able and rank == 0 else None
    name, where = comm.bcast(None if made is None else made[:2]) or ("", "")
    opened = made[2] if made is not None else _open(name, where) if able and name else None
    everybody = comm.allreduce(int(opened is not None)) == size
    if made is not None:
        os.close(made[3])
    if opened is None or not everybody:
        return None
    return SharedMemory(opened, rank, size, poll)


def _make(length: int) -> tuple[str, str, mmap.mmap, int] | None:
    """New memory: its name, where other processes find it, and the descriptor to be closed."""
    name = f"coredispatch-{os.urandom(16).hex()}"
    try:
        descriptor = os.memfd_create(name)
        os.ftruncate(descriptor, length)
        memory = mmap.mmap(descriptor, length)
    except OSError:
        return None
    return name, f"/proc/{os.getpid()}/fd/{descriptor}", memory, descriptor


def _open(name: str, where: str) -> mmap.mmap | None:
    """The memory that another process made; None where this process does not see it.

    On another machine `where` may be anything, so the name is compared before it is opened.
    """
    try:
        if name not in os.readlink(where):
            return None
        descriptor = os.open(where, os.O_RDWR)
        try:
            return mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
    except OSError:
        return None


def _layout(size: int) -> dict[str, tuple[type, tuple[int, ...]]]:
    """What lies in the memory: class of the elements and lengths. Unused pages take no memory."""
    turns = 2 if size == 2 else 3  # see SharedMemory._large
    return {
        "meetings": (np.int64, (size, _LINE // 8)),
        "heads": (np.int64, (size, 2, _LINE // 8)),
        "calls": (np.int64, (size, KEPT, WIDTH)),
        "small": (np.uint8, (size, 2, _SMALL)),
        "parts": (np.uint8, (size, turns, size, _part(size))),
    }


def _part(size: int) -> int:
    """Bytes of a chunk that one rank combines."""
    return _CHUNK // size // _LINE * _LINE


def _length(size: int) -> int:
    return sum(int(np.prod(shape)) * kind().itemsize for kind, shape in _layout(size).values())


class SharedMemory:
    """The memory of a communicator's ranks, and the reductions that go through it, in order.

    Args:
        poll: lets MPI go on with what is under way.
    """

    def __init__(self, memory: mmap.mmap, rank: int, size: int, poll: Callable[[], Any]) -> None:
        self.rank, self.size, self.poll = rank, size, poll
        self._others = [other % size for other in range(rank + 1, rank + size)]
        areas: dict[str, Any] = {}
        at = 0
        for area, (kind, shape) in _layout(size).items():
            count = int(np.prod(shape))
            areas[area] = np.frombuffer(memory, kind, count, at).reshape(shape)
            at += areas[area].nbytes
        self._heads, self._small_parts, self._parts = areas["heads"], areas["small"], areas["parts"]
        #: of the collectives that MPI carries out
        self.calls = Calls(areas["calls"], rank)
        # A memoryview reads and writes whole words, and costs less per element than an array.
        self._meetings = memoryview(areas["meetings"].reshape(-1))[:: _LINE // 8]
        self._met = self._calls = self._chunks = 0
        self._queue: deque[_Reduction] = deque()
        self._advancing = threading.Lock()

    def all_reduce(self, array: Any, op: str) -> Request:
        """Begin to combine contiguous `array` of all ranks, in place."""
        reduction = _Reduction(self, array, op)
        self._queue.append(reduction)
        moving[self] = None
        self.advance()
        return reduction

    def advance(self) -> None:
        """Go on with the oldest reduction, and with those after it when it is done."""
        if not self._advancing.acquire(blocking=False):
            return  # another thread is at it
        try:
            while self._queue and self._queue[0].step():
                self._queue.popleft()
            if not self._queue:
                moving.pop(self, None)
        finally:
            self._advancing.release()

    def steps(self, array: Any, op: str) -> Iterator[None]:
        """The reduction of `array`, which pauses wherever another rank is not that far."""
        self._calls += 1
        turn = self._calls % 2
        dtype = array.dtype
        own = (array.size, ord(dtype.kind), dtype.itemsize, _OPERATIONS.index(op))
        self._heads[self.rank, turn, : len(own)] = own
        whole = array.reshape(-1)
        how = self._small if whole.nbytes <= _SMALL else self._large
        return how(whole, Communicator.operations[op], turn)

    def _meet(self) -> Iterator[None]:
        self._met += 1
        self._meetings[self.rank] = self._met
        for other in self._others:
            while self._meetings[other] < self._met:
                yield

    def _agree(self, turn: int) -> Iterator[None]:
        """The first meeting of a call. Raises ValueError where the ranks call differently."""
        yield from self._meet()
        heads = self._heads[:, turn, :4]
        if (heads == heads[self.rank]).all():
            return
        calls = [
            f"  rank {rank} of the group: {count} elements of {np.dtype(f'{chr(kind)}{width}')}, "
            f"{_OPERATIONS[op]}"
            for rank, (count, kind, width, op) in enumerate(heads.tolist())
        ]
        raise ValueError(
            "the ranks call all_reduce with different tensors or operations:\n"
            + "\n".join(calls)
            + "\n  fix: use the same shape, dtype and operation on all ranks"
        )

    def _small(self, whole: Any, combine: Any, turn: int) -> Iterator[None]:
        """Each rank combines everything, in the order of ranks.

        A rank writes to the same place in its next call but one. By then all have met once more,
        so the others have read what it wrote here.
        """
        parts = self._small_parts[:, turn, : whole.nbytes].view(whole.dtype)
        parts[self.rank] = whole
        yield from self._agree(turn)
        with np.errstate(all="ignore"):
            combine(parts[0], parts[1], out=whole)
            for part in parts[2:]:
                combine(whole, part, out=whole)

    def _large(self, whole: Any, combine: Any, turn: int) -> Iterator[None]:
        """Each rank combines a part of every chunk, so that all get the same bits.

        ``parts[r, t, p]`` is what rank r puts in for rank p, which combines the parts p. The sum
        is written to ``parts[p + 1, t, p]``: into lines of memory that p has just read. Of two
        ranks only r reads it, before it puts in anew, and two turns are enough. Of more, a rank
        may be a phase ahead of one that reads, and three are needed.
        """
        parts = self._parts.view(whole.dtype)
        size, rank, turns = self.size, self.rank, parts.shape[1]
        length = parts.shape[3]
        count = -(-whole.size // (length * size))
        first = self._chunks  # the turns go on from call to call: a rank may still read the last

        def bounds(chunk: int) -> list[slice]:
            start = chunk * length * size
            end = min(start + length * size, whole.size)
            share = -(-(end - start) // size)
            return [slice(min(start + p * share, end), min(start + (p + 1) * share, end))
                    for p in range(size)]  # fmt: skip

        for phase in range(count + 2):
            if phase >= 2:
                at, where = (first + phase - 2) % turns, bounds(phase - 2)
                for p in self._others:
                    own = whole[where[p]]
                    own[...] = parts[(p + 1) % size, at, p, : own.size]
            if phase < count:
                at, where = (first + phase) % turns, bounds(phase)
                for p in self._others:
                    own = whole[where[p]]
                    parts[rank, at, p, : own.size] = own
            if 1 <= phase <= count:
                at, own = (first + phase - 1) % turns, whole[bounds(phase - 1)[rank]]
                with np.errstate(all="ignore"):
                    for r in self._others:
                        combine(own, parts[r, at, rank, : own.size], out=own)
                parts[(rank + 1) % size, at, rank, : own.size] = own
            if phase == 0:
                yield from self._agree(turn)
                self._chunks += count
            elif phase <= count:
                yield from self._meet()


class _Reduction(Request):
    """One call; it goes on when anybody waits in this process."""

    def __init__(self, memory: SharedMemory, array: Any, op: str) -> None:
        self._memory, self._array, self._op = memory, array, op
        self._steps: Iterator[None] | None = None
        self._over = False
        self._error: BaseException | None = None
        self._asked = itertools.count(1)

    def step(self) -> bool:
        """Go on; whether it is over."""
        try:
            if self._steps is None:
                self._steps = self._memory.steps(self._array, self._op)
            for _ in self._steps:
                return False
        except Exception as error:
            self._error = error
        except BaseException:
            self._error, self._over = RuntimeError("all_reduce was interrupted"), True
            raise
        self._over = True
        return True

    def done(self) -> bool:
        if not self._over:
            advance()
            if next(self._asked) % 16 == 0:  # another rank may wait for MPI
                self._memory.poll()
        return self._over

    def wait(self, seconds: float) -> None:
        if not wait_until(self.done, seconds, self._array.nbytes):
            raise LateError()
        if self._error is not None:
            raise self._error
