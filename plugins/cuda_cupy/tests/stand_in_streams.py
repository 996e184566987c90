"""Devices, streams, events and graphs of the stand-in for CuPy.

With ``MACHINE.delayed`` nothing runs by itself: work waits in the queue of its stream until
something synchronizes with it, and waiting for an event runs what is before it. So a stream that
should have waited reads memory that was not written yet, or was written too early, each time.
Without, work runs at once. Every synchronization is counted, by name, in ``MACHINE.syncs``.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = [
    "MACHINE", "CUDARuntimeError", "Device", "Event", "ExternalStream", "Graph", "State", "Stream",
    "capturing", "current_stream", "elapsed_time", "enqueue", "refuse_in_capture", "stream_at",
    "synchronized",
]  # fmt: skip

NOT_READY, CAPTURE_UNSUPPORTED, CAPTURED_EVENT, INVALID_HANDLE = 600, 900, 907, 400


class CUDARuntimeError(RuntimeError):
    """``cupy.cuda.runtime.CUDARuntimeError``."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text or f"CUDA error {status}")
        self.status = status


class Machine:
    """What all threads share: devices, queues, memory, and what was counted."""

    def reset(self, devices: int = 1, capacity: int = 1 << 26) -> None:
        """A machine with idle devices of ``capacity`` bytes."""
        self.devices, self.capacity = devices, capacity
        self.delayed = False
        self.syncs: list[str] = []
        self.queues: list[Queue] = []
        self.null = [Queue(device, True) for device in range(devices)]
        self.allocated = [0] * devices
        self.buffers: dict[int, Any] = {}  # address -> Buffer, for good: a late write harms nobody

    def delay(self) -> None:
        """From here on work waits until something synchronizes with it."""
        self.delayed = True
        for buffer in self.buffers.values():
            buffer.twin = buffer.real.copy()

    def drain(self, device: int | None = None) -> None:
        """Run all that is queued."""
        for queue in list(self.queues):
            if device in (None, queue.device):
                queue.run_to(_SEQUENCE[0])


_SEQUENCE = [0]
_NUMBERS = itertools.count(16)
_CLOCK = itertools.count(1)
MACHINE = Machine()


class Queue:
    """Work in order. A ``legacy`` queue is ordered with the null stream's, as blocking ones are."""

    def __init__(self, device: int, legacy: bool) -> None:
        self.device, self.legacy = device, legacy
        self.items: deque[tuple[int, Callable[[], None]]] = deque()
        self.done = 0
        MACHINE.queues.append(self)

    def put(self, work: Callable[[], None]) -> int:
        _SEQUENCE[0] += 1
        number = _SEQUENCE[0]
        if MACHINE.delayed:
            self.items.append((number, work))
        else:
            work()
            self.done = number
        return number

    def run_to(self, number: int) -> None:
        while self.items and self.items[0][0] <= number:
            at, work = self.items.popleft()
            null = MACHINE.null[self.device]
            for other in list(MACHINE.queues) if self is null else [null] if self.legacy else []:
                if other is not self and other.legacy and other.device == self.device:
                    other.run_to(at)
            work()
            self.done = at


class _State(threading.local):
    """The current device and streams of a thread."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.device = 0
        self.streams: dict[int, Stream] = {}
        self.stacks: dict[int, list[Any]] = {}
        self.checks_linalg = False
        self.allocator: Any = None


State = _State()


def synchronized(name: str) -> None:
    """Count a synchronization; refused while the stream captures."""
    refuse_in_capture()
    MACHINE.syncs.append(name)


def refuse_in_capture() -> None:
    if any(stream.graph is not None for stream in State.streams.values()):
        raise CUDARuntimeError(
            CAPTURE_UNSUPPORTED,
            "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
        )


def refuse_captured(graph: Any) -> None:
    """What is captured has no state to ask for, whatever thread asks."""
    if graph is not None:
        raise CUDARuntimeError(
            CAPTURED_EVENT,
            "cudaErrorCapturedEvent: operation not permitted on an event last recorded in a "
            "capturing stream",
        )


class Device:
    """One of the devices; current inside a ``with`` block."""

    def __init__(self, index: int | None = None) -> None:
        self.id = State.device if index is None else index

    def __enter__(self) -> Device:
        self.before, State.device = State.device, self.id
        return self

    def __exit__(self, *_: object) -> None:
        State.device = self.before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return self.id

    def synchronize(self) -> None:
        synchronized("Device.synchronize")
        MACHINE.drain(self.id)

    def use(self) -> Device:
        State.device = self.id
        return self


_KNOWN: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()


class Stream:
    """A stream; the null stream is one object for all devices, as in CuPy."""

    null: Any = None

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False,
        priority: int | None = None,
    ) -> None:  # fmt: skip
        assert not ptds, "the stand-in has no default stream for each thread"
        self.ptr = 0 if null else next(_NUMBERS)
        self.device_id = -1 if null else State.device
        self._queue = None if null else Queue(State.device, not non_blocking)
        self.is_non_blocking = non_blocking
        self.priority = min(max(priority or 0, -5), 0)
        self.graph: Graph | None = None
        _KNOWN[self.ptr] = self

    @classmethod
    def _adopted(cls, foreign: Any) -> Stream:
        """``Stream.from_external`` of CuPy 14."""
        version, address = foreign.__cuda_stream__()
        assert version == 0
        return _KNOWN.get(address) or ExternalStream(address)

    @property
    def queue(self) -> Queue:
        return MACHINE.null[State.device] if self._queue is None else self._queue

    def _here(self) -> int:
        if self.device_id not in (-1, State.device):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with "
                f"the current device ({State.device})"
            )
        return State.device

    def __enter__(self) -> Stream:
        device = self._here()
        State.stacks.setdefault(-1, []).append(device)
        State.stacks.setdefault(device, []).append(State.streams.get(device))
        State.streams[device] = self
        return self

    def __exit__(self, *_: object) -> None:
        device = State.stacks[-1].pop()
        before = State.stacks[device].pop()
        State.streams.pop(device)
        if before is not None:
            State.streams[device] = before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Stream, ExternalStream)) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return self.ptr

    def use(self) -> Stream:
        State.streams[self._here()] = self
        return self

    @property
    def done(self) -> bool:
        refuse_captured(self.graph)
        return not self.queue.items

    def synchronize(self) -> None:
        synchronized("Stream.synchronize")
        self.queue.run_to(_SEQUENCE[0])

    def record(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        if event.graph is not None:  # the stream joins what is captured
            self.graph = event.graph
            self.graph.joined.append(self)
            return
        queue, number = event.place
        if queue is not None:
            self.queue.put(lambda: queue.run_to(number))

    # -- graphs ----------------------------------------------------------------------------

    def begin_capture(self, mode: int | None = None) -> None:
        if self.ptr in (0, 1):
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self.graph is not None:
            raise CUDARuntimeError(CAPTURE_UNSUPPORTED, "the stream is capturing already")
        self.graph = Graph.__new__(Graph)
        self.graph.calls, self.graph.mode, self.graph.joined = [], 2 if mode is None else mode, []

    def end_capture(self) -> Graph:
        if self.graph is None:
            raise CUDARuntimeError(401, "cudaErrorIllegalState: the stream is not capturing")
        graph, self.graph = self.graph, None
        for stream in graph.joined:
            stream.graph = None
        return graph

    def is_capturing(self) -> bool:
        return self.graph is not None


class ExternalStream(Stream):
    """A stream that another library made."""

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__(non_blocking=True)
        self.ptr, self.device_id = ptr, device_id


def _null() -> Stream:
    if Stream.null is None:
        Stream.null = Stream(null=True)
    return Stream.null


def current_stream(device: int = -1) -> Stream:
    """``cupy.cuda.get_current_stream``: one stream of each device for each thread."""
    return State.streams.get(State.device if device in (-1, None) else device) or _null()


def stream_at(ptr: int) -> Stream:
    """The stream with this address, as the driver is given it."""
    return _KNOWN[ptr]


def capturing() -> Any:
    """The graph that the current stream is capturing, or None."""
    return current_stream().graph


def enqueue(work: Callable[[], None]) -> None:
    """Put work on the current stream."""
    current_stream().queue.put(work)


class Event:
    """A mark in a stream; its time is the number of marks that were reached before it."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        self.timed, self.ptr = not disable_timing, next(_NUMBERS)
        self.place: tuple[Queue | None, int] = (None, 0)
        self.graph: Any = None
        self.time = 0

    def record(self, stream: Stream | None = None) -> None:
        stream = current_stream() if stream is None else stream
        if stream.graph is not None:
            self.graph = stream.graph
            return
        self.graph = None

        def reached() -> None:
            self.time = next(_CLOCK)

        self.place = stream.queue, stream.queue.put(reached)

    @property
    def done(self) -> bool:
        refuse_captured(self.graph)
        queue, number = self.place
        return queue is None or queue.done >= number

    def synchronize(self) -> None:
        refuse_captured(self.graph)
        synchronized("Event.synchronize")
        queue, number = self.place
        if queue is not None:
            queue.run_to(number)


def elapsed_time(start: Event, end: Event) -> float:
    """``cupy.cuda.get_elapsed_time``."""
    if not (start.timed and end.timed) or None in (start.place[0], end.place[0]):
        raise CUDARuntimeError(
            INVALID_HANDLE, "cudaErrorInvalidResourceHandle: invalid resource handle"
        )
    if not (start.done and end.done):
        raise CUDARuntimeError(NOT_READY, "cudaErrorNotReady: device not ready")
    return float(end.time - start.time)


class Graph:
    """What was captured, to run again with the memory of then."""

    calls: list[Any]
    mode: int
    joined: list[Stream]

    @property
    def graphExec(self) -> int:
        return id(self)

    def __init__(self) -> None:
        raise NotImplementedError("a graph is made by stream capture")

    def launch(self, stream: Stream | None = None) -> None:
        stream = current_stream() if stream is None else stream
        for call in self.calls:
            if MACHINE.delayed:
                call.run("twin")
            stream.queue.put(call.run)
