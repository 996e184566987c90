"""Device memory: CuPy's pool behind an allocator that knows streams, counts and explains.

CuPy's pool hands a freed block out again on the stream it was made on, at once. That is wrong
where another stream still works with it. Here each block remembers when it was made, and a freed
one goes back to the pool only when every stream that may have used it meanwhile has come to an
event behind that work: what ``record_stream`` asks for elsewhere, by default. Which streams those
are: those that were current on some thread since the block was made, and those named to
:meth:`Allocator.record`. A program with one stream never waits and makes no event.

A stream that CuPy's own ``with stream:`` makes current is noticed when memory is allocated inside;
``x.record_stream(s)`` says what cannot be noticed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from coredispatch.plugin import OutOfMemoryError
from coredispatch_cuda_cupy.holders import report

__all__ = ["Allocator", "Block"]

_NOW = float("inf")


class Block:
    """A block of the pool. When nothing holds it any more its allocator decides what comes next.

    Attributes:
        state: the allocator, CuPy's pointer, device, size, stream, and the epoch it was made in.
        users: other streams that :meth:`Allocator.record` named.
    """

    __slots__ = ("state", "users")

    state: tuple[Any, Any, int, int, Any, int]
    users: tuple[Any, ...]

    def __del__(self) -> None:
        self.state[0].freed(self.state, self.users)


class _Use:
    """A stream that work was put on, and until which epoch it was current on some thread."""

    __slots__ = ("stream", "threads", "until")

    def __init__(self, stream: Any) -> None:
        self.stream, self.threads, self.until = stream, 0, 0.0


class Counts:
    """What is counted for one device, in bytes of whole blocks and in blocks."""

    def __init__(self) -> None:
        #: bytes that arrays use, and that streams still work with
        self.current = self.held = 0
        self.allocated = self.allocations = self.frees = self.held_blocks = 0
        self.peak = self.peak_active = self.peak_reserved = 0
        self.retries = self.failures = 0

    def reset_peaks(self, reserved: int) -> None:
        """Peaks are what there is now."""
        self.peak, self.peak_active = self.current, self.current + self.held
        self.peak_reserved = reserved


class Allocator:
    """The allocator that CuPy calls for the memory of every array.

    Args:
        cupy: the module.
        pool: the pool to take blocks from, CuPy's default one.
        devices: how many devices there are.
    """

    def __init__(self, cupy: Any, pool: Any, devices: int) -> None:
        self.cupy, self.pool = cupy, pool
        self.counts = [Counts() for _ in range(devices)]
        #: how often a thread has changed its stream so far
        self.epoch = 0
        self._uses: list[dict[int, _Use]] = [{} for _ in range(devices)]
        self._local = threading.local()
        #: pools of graphs, beside the one that everything else comes from
        self.private: list[Any] = []
        self._lock = threading.RLock()
        #: freed blocks that no event stands for yet, with the streams to wait for
        self._waiting: deque[tuple[Any, int, int, tuple[Any, ...]]] = deque()
        #: (events, blocks) in the order in which they were freed
        self._held: deque[tuple[list[Any], list[tuple[Any, int, int]]]] = deque()
        #: the allocator to give to CuPy; see :meth:`function`
        self.malloc = self.function(pool)

    # -- allocation ------------------------------------------------------------------------

    def function(self, pool: Any) -> Callable[[int], Any]:
        """``malloc(size)``: a ``MemoryPointer`` to a block of ``pool`` on the current device.

        It raises :class:`OutOfMemoryError`, which says what was asked, what is free, who holds
        what. CuPy calls it for every array, so it is one function with all it needs at hand: that
        halves its time. Freed blocks are looked at for CuPy's own pool only; during the capture of
        a graph, which has another, no event may be made.
        """
        take, current, local = pool.malloc, self.cupy.cuda.get_current_stream, self._local
        pointer_to, unowned = self.cupy.cuda.MemoryPointer, self.cupy.cuda.UnownedMemory
        waiting, held, counts_of, main = self._waiting, self._held, self.counts, pool is self.pool

        def malloc(size: int) -> Any:
            if main and (waiting or held):
                self.collect()
            try:
                pointer = take(size)
            except MemoryError as error:
                pointer = self._again(pool, size, error)
            place = pointer.ptr
            if not place:
                return pointer
            index, size, stream = pointer.device_id, pointer.mem.size, current()
            try:
                last = local.streams[index]
            except AttributeError:
                last = None
            if last is not stream:
                self.noticed(stream, index)
            block = Block()
            block.state = (self, pointer, index, size, stream, self.epoch)
            block.users = ()
            counts = counts_of[index]
            counts.allocations += 1
            counts.allocated += size
            counts.current = now = counts.current + size
            if now > counts.peak or counts.held:
                self._risen(counts, index)
            return pointer_to(unowned(place, size, block, index), 0)

        malloc.allocator = self  # type: ignore[attr-defined]
        return malloc

    def _risen(self, counts: Counts, index: int) -> None:
        """More is in use than before."""
        counts.peak = max(counts.peak, counts.current)
        counts.peak_active = max(counts.peak_active, counts.current + counts.held)
        self.reserved(index)

    def _again(self, pool: Any, size: int, error: MemoryError) -> Any:
        """Once more, after waiting for the streams that keep freed blocks; or the report."""
        index = int(self.cupy.cuda.runtime.getDevice())
        counts = self.counts[index]
        counts.retries += 1
        self.reserved(index)
        self.finish()
        try:
            return pool.malloc(size)
        except MemoryError:
            counts.failures += 1
        text, fix = report(self, index, size, Block)
        raise OutOfMemoryError(text, fix=fix) from error

    # -- streams ---------------------------------------------------------------------------

    def _last(self) -> list[Any]:
        """By device: the stream that this thread's work was last seen to go to."""
        try:
            found: list[Any] = self._local.streams
        except AttributeError:
            found = self._local.streams = [None] * len(self.counts)
            self._local.uses = [None] * len(self.counts)
        return found

    def noticed(self, stream: Any, index: int) -> None:
        """This thread's work goes to ``stream`` of device ``index`` from here on."""
        self._last()[index] = stream
        uses = self._local.uses
        with self._lock:
            use = self._uses[index].setdefault(stream.ptr, _Use(stream))
            last = uses[index]
            if last is use:
                return
            self.epoch += 1
            if last is not None:
                last.threads -= 1
                last.until = last.until if last.threads else self.epoch
            use.threads += 1
            use.until = _NOW
            uses[index] = use

    def record(self, array: Any, stream: Any) -> None:
        """``stream`` works with the memory of ``array``, which was made for another one."""
        self.record_pointer(array.data, stream)

    def record_pointer(self, pointer: Any, stream: Any) -> None:
        """:meth:`record` for the block that a ``MemoryPointer`` points into."""
        block = getattr(pointer.mem, "_owner", None)
        if isinstance(block, Block) and stream.ptr not in [s.ptr for s in block.users]:
            block.users = (*block.users, stream)

    # -- freed blocks ----------------------------------------------------------------------

    def freed(self, state: tuple[Any, Any, int, int, Any, int], users: tuple[Any, ...]) -> None:
        """Nothing holds a block any more: it goes back now, or when its streams are done."""
        _, pointer, index, size, stream, made = state
        counts, uses = self.counts[index], self._uses[index]
        counts.current -= size
        counts.frees += 1
        if len(uses) > 1:
            known = [s.ptr for s in (stream, *users)]
            users += tuple(
                use.stream
                for ptr, use in list(uses.items())
                if use.until > made and ptr not in known
            )
        if users:  # else the pool has it again when ``state`` is gone
            counts.held += size
            counts.held_blocks += 1
            self._waiting.append((pointer, index, size, users))

    def collect(self) -> None:
        """Make events for what was freed, and give back what all streams are done with."""
        with self._lock:
            if self._waiting:
                self._mark()
            while self._held and all(event.done for event in self._held[0][0]):
                self._give_back(self._held.popleft()[1])

    def finish(self) -> None:
        """Wait for the streams that keep freed blocks, and give all of them back."""
        with self._lock:
            self._mark()
            while self._held:
                events, blocks = self._held.popleft()
                for event in events:
                    event.synchronize()
                self._give_back(blocks)

    def _mark(self) -> None:
        """One event in each stream that a freed block waits for, for all of them together."""
        events: dict[tuple[int, int], Any] = {}
        blocks = []
        while self._waiting:
            pointer, index, size, users = self._waiting.popleft()
            for stream in users:
                place = index, stream.ptr
                if place not in events:
                    events[place] = self._event(stream, index)
            blocks.append((pointer, index, size))
        if blocks:
            self._held.append((list(events.values()), blocks))

    def _event(self, stream: Any, index: int) -> Any:
        with self.cupy.cuda.Device(index):
            event = self.cupy.cuda.Event(disable_timing=True)
            event.record(stream)
        return event

    def _give_back(self, blocks: list[tuple[Any, int, int]]) -> None:
        for _, index, size in blocks:
            self.counts[index].held -= size
            self.counts[index].held_blocks -= 1

    # -- what is known ---------------------------------------------------------------------

    def reserved(self, index: int) -> int:
        """Bytes that the pool has of device ``index``, which is current."""
        found = int(self.pool.total_bytes()) + sum(int(p.total_bytes()) for p in self.private)
        counts = self.counts[index]
        counts.peak_reserved = max(counts.peak_reserved, found)
        return found

    def reset_peaks(self, index: int) -> None:
        """Peaks of device ``index``, which is current, begin anew."""
        self.counts[index].reset_peaks(self.reserved(index))

    def reset_totals(self, index: int) -> None:
        """Totals of device ``index`` begin anew; what is in use stays counted."""
        counts = self.counts[index]
        counts.allocated = counts.current
        counts.allocations, counts.frees = counts.allocations - counts.frees, 0
        counts.retries = counts.failures = 0

    def statistics(self, index: int) -> dict[str, int]:
        """The counts of device ``index``, which is current, under PyTorch's names."""
        counts, reserved = self.counts[index], self.reserved(index)
        blocks = counts.allocations - counts.frees
        active, active_bytes = blocks + counts.held_blocks, counts.current + counts.held
        gone = max(0, counts.frees - counts.held_blocks)
        gone_bytes = max(0, counts.allocated - active_bytes)
        found = {
            "active.all.allocated": gone + active,
            "active.all.current": active,
            "active.all.freed": gone,
            "active_bytes.all.allocated": gone_bytes + active_bytes,
            "active_bytes.all.current": active_bytes,
            "active_bytes.all.freed": gone_bytes,
            "active_bytes.all.peak": counts.peak_active,
            "allocated_bytes.all.allocated": counts.allocated,
            "allocated_bytes.all.current": counts.current,
            "allocated_bytes.all.freed": counts.allocated - counts.current,
            "allocated_bytes.all.peak": counts.peak,
            "allocation.all.allocated": counts.allocations,
            "allocation.all.current": blocks,
            "allocation.all.freed": counts.frees,
            "inactive_split_bytes.all.current": reserved - active_bytes,
            "max_split_size": -1,  # blocks of every size are split
            "num_alloc_retries": counts.retries,
            "num_ooms": counts.failures,
            "num_sync_all_streams": counts.retries,  # each retry waits first
            "reserved_bytes.all.current": reserved,
            "reserved_bytes.all.peak": counts.peak_reserved,
        }
        return dict(sorted(found.items()))
