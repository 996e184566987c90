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

At the first meeting of a call the ranks see what the others are about to combine, and whether they
called the same of MPI's collectives before. Where that differs, all of them raise.
"""

from __future__ import annotations

import mmap
import os
import platform
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any

import numpy as np

from coredispatch.plugin import Communicator, LateError, Request
from coredispatch_mpi.calls import KEPT, WIDTH, Calls
from coredispatch_mpi.waiting import advance, moving, wait_until

__all__ = ["SharedMemory", "shared_memory"]

_MOST_RANKS = 4  # with more of them each has too many others to meet
_CHUNK = 256 * 1024  # bytes of an array that go through together
# Bytes up to which each of two ranks combines the whole: one meeting instead of two. Of more
# ranks each reads as many others' elements for that.
_SMALL = 256 * 1024
_LINE = 64  # bytes that no two ranks write to
_OPERATIONS = {name: number for number, name in enumerate(Communicator.operations)}
_ASKS = 200  # how often a rank looks for the others before it lets anything else go on
_OWN = (1 << 56) - 1  # the part of a head that is about the call itself
_KNOWN = 64  # dtypes and shapes of short arrays whose places are kept


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
        "small": (np.uint8, (size, 2, _short(size))),
        "parts": (np.uint8, (size, turns, size, _part(size))),
    }


def _part(size: int) -> int:
    """Bytes of a chunk that one rank combines."""
    return _CHUNK // size // _LINE * _LINE


def _short(size: int) -> int:
    """Bytes up to which each rank combines the whole."""
    return _SMALL // (size - 1) // _LINE * _LINE


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
        self._small_parts, self._parts = areas["small"], areas["parts"]
        self._short = _short(size)
        #: of the collectives that MPI carries out
        self.calls = Calls(areas["calls"], rank)
        # A memoryview reads and writes whole words, and costs less per element than an array.
        self._meetings = memoryview(areas["meetings"].reshape(-1))[:: _LINE // 8]
        self._heads = memoryview(areas["heads"].reshape(-1))[:: _LINE // 8]  # two of each rank
        self._met = self._calls = self._chunks = 0
        self._places: dict[Any, list[list[Any]]] = {}
        self._chunk_places: dict[Any, list[_ChunkPlaces]] = {}
        self._queue: deque[_Reduction] = deque()
        self._advancing = threading.Lock()
        silent = Context()  # costs a tenth of a block of np.errstate
        silent.run(np.seterr, all="ignore")
        self._silently = silent.run

    def all_reduce(self, array: Any, op: str) -> Request:
        """Begin to combine contiguous `array` of all ranks, in place."""
        reduction = _Reduction(self, array, op)
        # A short one asks for nothing more of this rank once its part is there, so that it goes
        # on only when somebody waits for it.
        at_once = not self._queue and array.nbytes <= self._short
        if at_once and self._advancing.acquire(blocking=False):
            try:
                if not reduction.step():
                    self._queue.append(reduction)
            finally:
                self._advancing.release()
        else:
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

    def hurry(self, reduction: _Reduction, asks: int) -> None:
        """Go on with nothing but `reduction`, if it is its turn, for a short while."""
        if not self._advancing.acquire(blocking=False):
            return
        try:
            if self._queue and self._queue[0] is reduction:
                for _ in range(asks):
                    if reduction.step():
                        self._queue.popleft()
                        break
            if not self._queue:
                moving.pop(self, None)
        finally:
            self._advancing.release()

    def steps(self, array: Any, op: str, head: int) -> Iterator[None]:
        """The reduction of `array`, which pauses wherever another rank is not that far."""
        self._calls += 1
        turn = self._calls % 2
        self._heads[2 * self.rank + turn] = head
        how = self._small if array.nbytes <= self._short else self._large
        return how(array, Communicator.operations[op], turn)

    def _meet(self) -> Iterator[None]:
        self._met = met = self._met + 1
        meetings = self._meetings
        meetings[self.rank] = met
        for other in self._others:
            while meetings[other] < met:
                yield

    def _compare(self, turn: int) -> None:
        """After the first meeting of a call: ValueError where the ranks call differently."""
        heads = self._heads
        own = heads[2 * self.rank + turn]
        for other in self._others:
            if heads[2 * other + turn] != own:
                break
        else:
            return
        every = [heads[2 * r + turn] for r in range(self.size)]
        if len({head & _OWN for head in every}) == 1:
            raise ValueError(
                "the ranks called different collectives before this one, or gave them different "
                "roots or operations\n  fix: all ranks must call the same collectives in the same "
                "order; DISTRIBUTED_DEBUG=DETAIL names the first that differs"
            )
        calls = [f"  rank {r} of the group: {_text(head)}" for r, head in enumerate(every)]
        raise ValueError(
            "the ranks call all_reduce with different tensors or operations:\n"
            + "\n".join(calls)
            + "\n  fix: use the same shape, dtype and operation on all ranks"
        )

    def _small(self, array: Any, combine: Any, turn: int) -> Iterator[None]:
        """Each rank combines everything, in the order of ranks.

        A rank writes to the same place in its next call but one. By then all have met once more,
        so the others have read what it wrote here.
        """
        places = self._places.get((array.dtype, array.shape)) or self._place(array)
        parts = places[turn]
        parts[self.rank][...] = array
        yield from self._meet()
        self._compare(turn)
        first, second = parts[0], parts[1]
        if self.rank == 0:  # the array itself is nearer than its copy
            first = array
        elif self.rank == 1:
            second = array
        self._silently(combine, first, second, out=array)
        for part in parts[2:]:
            self._silently(combine, array, part, out=array)

    def _place(self, array: Any) -> list[list[Any]]:
        """Where short arrays of this dtype and shape go, by turn and rank."""
        if len(self._places) >= _KNOWN:
            self._places.clear()
        found = [
            [
                part[turn, : array.nbytes].view(array.dtype).reshape(array.shape)
                for part in self._small_parts
            ]
            for turn in range(2)
        ]
        self._places[array.dtype, array.shape] = found
        return found

    def _large(self, array: Any, combine: Any, turn: int) -> Iterator[None]:
        """Each rank combines a part of every chunk, so that all get the same bits."""
        whole, run = array.reshape(-1), self._silently
        turns = self._chunk_places.get(whole.dtype)
        if turns is None:
            parts = self._parts.view(whole.dtype)
            most = parts.shape[3] * self.size
            turns = [_ChunkPlaces(parts[:, t], self.rank, most) for t in range(parts.shape[1])]
            self._chunk_places[whole.dtype] = turns
        rank, size, most = self.rank, self.size, turns[0].count
        first = self._chunks  # the turns go on from call to call: a rank may still read the last
        starts = range(0, whole.size, most)
        count = len(starts)

        def at(chunk: int) -> tuple[_ChunkPlaces, list[Any]]:
            """The places of a chunk, and the ranks' parts of it in the array."""
            own = whole[starts[chunk] : starts[chunk] + most]
            places = turns[(first + chunk) % len(turns)].of(own.size)
            share = places.share
            return places, [own[p * share : (p + 1) * share] for p in range(size)]

        under_way: list[tuple[_ChunkPlaces, list[Any]]] = []
        for phase in range(count + 2):
            if phase >= 2:
                places, own = under_way[0]
                for p in self._others:
                    own[p][...] = places.taken[p]
                del under_way[0]
            if phase < count:
                places, own = at(phase)
                under_way.append((places, own))
                for p in self._others:
                    places.given[p][...] = own[p]
            if 1 <= phase <= count:
                places, own = under_way[-1 if phase == count else -2]
                mine = own[rank]
                for r in self._others:
                    run(combine, mine, places.coming[r], out=mine)
                places.combined[...] = mine
            if phase <= count:
                yield from self._meet()
            if phase == 0:
                self._compare(turn)
                self._chunks += count


class _ChunkPlaces:
    """Where the parts of a chunk lie, for one of the ranks.

    ``parts[r, p]`` is what rank r puts in for rank p, which combines the parts p. The sum is
    written to ``parts[p + 1, p]``: into lines of memory that p has just read. Of two ranks only r
    reads it, before it puts in anew, and two turns are enough. Of more, a rank may be a phase ahead
    of one that reads, and three are needed.

    Attributes:
        given, coming, taken: this rank's part for another rank, what the other has for this one,
            and the other's sum.
        combined: where this rank's sum goes.
        count: elements of the chunk.
        share: those of a part, but for the last ones.
    """

    def __init__(self, parts: Any, rank: int, count: int) -> None:
        size = len(parts)
        self._parts, self._rank, self.count = parts, rank, count
        self._shorter: dict[int, _ChunkPlaces] = {}
        self.share = share = -(-count // size)
        lengths = [min(max(count - p * share, 0), share) for p in range(size)]
        self.given = [parts[rank, p, :n] for p, n in enumerate(lengths)]
        self.coming = [part[: lengths[rank]] for part in parts[:, rank]]
        self.taken = [parts[(p + 1) % size, p, :n] for p, n in enumerate(lengths)]
        self.combined = self.taken[rank]

    def of(self, count: int) -> _ChunkPlaces:
        """The places of a chunk of `count` elements: of ``share`` for each rank while there are."""
        if count == self.count:
            return self
        short = self._shorter.get(count)
        if short is None:
            if len(self._shorter) >= _KNOWN:
                self._shorter.clear()
            short = self._shorter[count] = _ChunkPlaces(self._parts, self._rank, count)
        return short


def _head(array: Any, op: str, trace: int) -> int:
    """A call, and the `trace` of those before it, as one number for the ranks to compare."""
    dtype = array.dtype
    own = ((array.size << 7 | ord(dtype.kind)) << 5 | dtype.itemsize) << 4 | _OPERATIONS[op]
    return trace << 56 | own  # type: ignore[no-any-return]


def _text(head: int) -> str:
    """A call as an error shows it."""
    head &= _OWN
    dtype = np.dtype(f"{chr(head >> 9 & 127)}{head >> 4 & 31}")
    return f"{head >> 16} elements of {dtype}, {list(_OPERATIONS)[head & 15]}"


class _Reduction(Request):
    """One call; it goes on when anybody waits in this process."""

    def __init__(self, memory: SharedMemory, array: Any, op: str) -> None:
        self._memory, self._array, self._op = memory, array, op
        self._head = _head(array, op, memory.calls.trace)
        self._steps: Iterator[None] | None = None
        self._over = False
        self._error: BaseException | None = None
        self._asked = 0

    def step(self) -> bool:
        """Go on; whether it is over."""
        try:
            if self._steps is None:
                self._steps = self._memory.steps(self._array, self._op, self._head)
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
            self._memory.advance()
            advance()
            self._asked += 1
            if self._asked % 16 == 0:  # another rank may wait for MPI
                self._memory.poll()
        return self._over

    def wait(self, seconds: float) -> None:
        if not self._over:
            self._memory.hurry(self, _ASKS)
            if not self._over and not wait_until(self.done, seconds, self._array.nbytes):
                raise LateError()
        if self._error is not None:
            raise self._error
