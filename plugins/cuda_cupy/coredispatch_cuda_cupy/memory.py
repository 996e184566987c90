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
from coredispatch_cuda_cupy.capture import is_captured
from coredispatch_cuda_cupy.holders import report

__all__ = ["Allocator", "Block"]

_NOW = float("inf")
#: see :class:`Block`
State = tuple[Any, Any, int, int, Any, int, int]


class Block:
    """A block of the pool. When nothing holds it any more its allocator decides what comes next.

    Attributes:
        state: the allocator, CuPy's pointer, device, size, stream, the epoch it was made in, and
            the bytes that were asked for.
        users: other streams that :meth:`Allocator.record` named.
    """

    __slots__ = ("state", "users")

    state: State
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
        #: bytes that arrays use, those that they asked for, and those that streams still work with
        self.current = self.wanted = self.held = 0
        #: of all blocks so far: bytes, bytes that were asked for, how many, and how many are free
        self.allocated = self.requested = self.allocations = self.frees = 0
        self.held_blocks = 0
        self.peak = self.peak_wanted = self.peak_blocks = 0
        self.peak_active = self.peak_active_blocks = self.peak_reserved = 0
        self.retries = self.failures = 0
        #: by name what had been allocated and freed when totals began anew
        self.before: dict[str, tuple[int, int]] = {}

    def risen(self) -> None:
        """More is in use than before, in one way or another."""
        blocks = self.allocations - self.frees
        self.peak = max(self.peak, self.current)
        self.peak_wanted = max(self.peak_wanted, self.wanted)
        self.peak_blocks = max(self.peak_blocks, blocks)
        self.peak_active = max(self.peak_active, self.current + self.held)
        self.peak_active_blocks = max(self.peak_active_blocks, blocks + self.held_blocks)

    def reset_peaks(self, reserved: int) -> None:
        """Peaks are what there is now."""
        self.peak = self.peak_wanted = self.peak_blocks = 0
        self.peak_active = self.peak_active_blocks = 0
        self.risen()
        self.peak_reserved = reserved

    def totals(self) -> dict[str, tuple[int, int, int]]:
        """By name what there is, the most there was, and what was allocated from the beginning."""
        blocks = self.allocations - self.frees
        return {
            "active": (blocks + self.held_blocks, self.peak_active_blocks, self.allocations),
            "active_bytes": (self.current + self.held, self.peak_active, self.allocated),
            "allocated_bytes": (self.current, self.peak, self.allocated),
            "allocation": (blocks, self.peak_blocks, self.allocations),
            "requested_bytes": (self.wanted, self.peak_wanted, self.requested),
        }

    def reset_totals(self) -> None:
        """What was allocated and freed is 0, as are retries and failures."""
        self.before = {name: (made, made - now) for name, (now, _, made) in self.totals().items()}
        self.retries = self.failures = 0


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
            asked, index, size, stream = size, pointer.device_id, pointer.mem.size, current()
            try:
                last = local.streams[index]
            except AttributeError:
                last = None
            if last is not stream:
                self.noticed(stream, index)
            block = Block()
            block.state = (self, pointer, index, size, stream, self.epoch, asked)
            block.users = ()
            counts = counts_of[index]
            counts.allocations = made = counts.allocations + 1
            counts.allocated += size
            counts.requested += asked
            counts.current = now = counts.current + size
            counts.wanted = wanted = counts.wanted + asked
            if now > counts.peak or counts.held:
                counts.risen()
                self.reserved(index)
            elif wanted > counts.peak_wanted or made - counts.frees > counts.peak_blocks:
                counts.risen()
            return pointer_to(unowned(place, size, block, index), 0)

        malloc.allocator = self  # type: ignore[attr-defined]
        return malloc

    def _again(self, pool: Any, size: int, error: MemoryError) -> Any:
        """Once more, after waiting for the streams that keep freed blocks; or the report."""
        index = int(self.cupy.cuda.runtime.getDevice())
        counts = self.counts[index]
        counts.retries += 1
        self.reserved(index)
        self.finish()
        if pool is not self.pool:  # what that one keeps unused is of no use here
            self.pool.free_all_blocks()
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
            self._local.seen = [{} for _ in self.counts]
        return found

    def noticed(self, stream: Any, index: int) -> None:
        """This thread's work goes to ``stream`` of device ``index`` from here on."""
        self._last()[index] = stream
        self._local.seen[index][stream.ptr] = stream
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

    def follow(self) -> None:
        """Let the current streams wait for the others that this thread has put work on since.

        Between streams that are captured and those that are not nothing may wait.
        """
        self._last()
        for index, seen in enumerate(self._local.seen):
            if len(seen) < 2:
                continue
            with self.cupy.cuda.Device(index):
                current = self.cupy.cuda.get_current_stream()
                captured = is_captured(current)
                for ptr, stream in list(seen.items()):
                    if is_captured(stream) == captured:
                        if ptr != current.ptr:
                            current.wait_event(self._event(stream, index))
                        del seen[ptr]
                seen[current.ptr] = current

    def record(self, array: Any, stream: Any) -> None:
        """``stream`` works with the memory of ``array``, which was made for another one."""
        self.record_pointer(array.data, stream)

    def record_pointer(self, pointer: Any, stream: Any) -> None:
        """:meth:`record` for the block that a ``MemoryPointer`` points into."""
        block = getattr(pointer.mem, "_owner", None)
        if isinstance(block, Block) and stream.ptr not in [s.ptr for s in block.users]:
            block.users = (*block.users, stream)

    # -- freed blocks ----------------------------------------------------------------------

    def freed(self, state: State, users: tuple[Any, ...]) -> None:
        """Nothing holds a block any more: it goes back now, or when its streams are done."""
        _, pointer, index, size, stream, made, asked = state
        counts, uses = self.counts[index], self._uses[index]
        counts.current -= size
        counts.wanted -= asked
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
        """One event in each stream that a freed block waits for, for all of them together.

        Blocks that wait for a stream which some thread captures wait for the end of that.
        """
        events: dict[tuple[int, int], Any] = {}
        blocks, later = [], []
        while self._waiting:
            found = pointer, index, size, users = self._waiting.popleft()
            for stream in users:
                place = index, stream.ptr
                if place not in events:
                    captured = is_captured(stream)
                    events[place] = None if captured else self._event(stream, index)
            if all(events[index, stream.ptr] is not None for stream in users):
                blocks.append((pointer, index, size))
            else:
                later.append(found)
        self._waiting.extend(later)
        if blocks:
            self._held.append(([e for e in events.values() if e is not None], blocks))

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
        self.counts[index].reset_totals()

    def statistics(self, index: int) -> dict[str, int]:
        """The counts of device ``index``, which is current, under PyTorch's names.

        The peak of ``reserved_bytes`` is that of the moments when more was in use than before, when
        memory was given back, and when somebody asked. What CuPy's pool does not tell is not there:
        see :meth:`missing`.
        """
        counts, reserved = self.counts[index], self.reserved(index)
        found = {
            "inactive_bytes.all.current": reserved - counts.current - counts.held,
            "max_split_size": -1,  # blocks of every size are split
            "num_alloc_retries": counts.retries,
            "num_ooms": counts.failures,
            "num_sync_all_streams": counts.retries,  # each retry waits first
            "reserved_bytes.all.current": reserved,
            "reserved_bytes.all.peak": counts.peak_reserved,
        }
        for name, (now, peak, made) in counts.totals().items():
            made_before, gone_before = counts.before.get(name, (0, 0))
            found |= {
                f"{name}.all.allocated": made - made_before,
                f"{name}.all.current": now,
                f"{name}.all.freed": made - now - gone_before,
                f"{name}.all.peak": peak,
            }
        for name in ("oversize_allocations", "oversize_segments"):  # no size is
            found |= dict.fromkeys((f"{name}.{x}" for x in ("allocated", "current", "freed")), 0)
            found[f"{name}.peak"] = 0
        return dict(sorted(found.items()))

    @staticmethod
    def missing(name: str) -> str | None:
        """Why a statistic of PyTorch's is not among :meth:`statistics`; None for other names."""
        kind, _, rest = name.partition(".")
        if kind in ("inactive_split", "inactive_split_bytes"):
            return "CuPy's pool does not tell what it has split; see inactive_bytes.all.current"
        if kind in ("segment", "num_device_alloc", "num_device_free", "reserved_bytes"):
            return "CuPy's pool does not tell when it asks the driver for memory"
        if kind == "reserved_bytes_by_private_pools":
            return "pools of graphs are counted together with the rest"
        if rest.startswith(("large_pool.", "small_pool.")):
            return "CuPy's pool is one for all sizes; see the statistics of 'all'"
        return None
