"""Streams and events: queues of work on a device, and marks in them.

They are the backend's (CuPy's) with PyTorch's names. Without a device making one refuses. Which
stream is current is a thread's own matter. Memory that a stream still works with is not used again,
whoever frees it; see ``Tensor.record_stream`` for streams that coredispatch cannot know of.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from coredispatch.frontend.cuda.devices import asked, device_index, is_available, present
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import ArgumentError, DTypeError

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "set_stream",
    "stream",
]


def expected(op: str, wanted: str, found: Any) -> DTypeError:
    """The error for an argument of another type."""
    return DTypeError(
        f"{op} takes {wanted}, got {found!r} of type {type(found).__name__}",
        fix="give cd.cuda.Event()" if wanted == "an Event" else "give cd.cuda.Stream()",
    )


def expected_stream(op: str, stream: Any) -> Any:
    """``stream``; :class:`DTypeError` unless it is one of a device."""
    if not hasattr(stream, "raw") or not hasattr(stream, "record_event"):
        raise expected(op, "a Stream", stream)
    return stream


class _Entered(threading.local):
    """By stream the blocks that this thread has entered with the stream itself."""

    def __init__(self) -> None:
        self.blocks: dict[int, list[Any]] = {}


_ENTERED = _Entered()


class Stream:
    """A queue of work: what is put into one runs in order, streams run beside each other.

    Args:
        device: the device, the current one by default.
        priority: -1 runs before 0 where both have work; see :meth:`priority_range`.

    There are as many streams of a device and priority as the backend has made (32): then the first
    is given again.

    Example:
        >>> side = cd.cuda.Stream()  # doctest: +SKIP
        >>> side.wait_stream(cd.cuda.current_stream())  # doctest: +SKIP
        >>> with cd.cuda.stream(side):  # doctest: +SKIP
        ...     y = x @ x
        >>> cd.cuda.current_stream().wait_stream(side)  # doctest: +SKIP
    """

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.index = device_index(device)
        self.priority = priority
        self.raw = asked("make_stream", self.index, priority)

    @classmethod
    def of(cls, raw: Any, index: int) -> Stream:
        """A stream around one of the backend's."""
        made = cls.__new__(cls)
        made.raw, made.index, made.priority = raw, index, int(getattr(raw, "priority", 0) or 0)
        return made

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority of the current device, such as ``(0, -5)``."""
        least, greatest = asked("stream_priorities")
        return int(least), int(greatest)

    @property
    def device(self) -> Device:
        """The device the stream is on."""
        return Device("cuda", self.index)

    @property
    def device_index(self) -> int:
        """The number of the device the stream is on."""
        return self.index

    @property
    def cuda_stream(self) -> int:
        """The driver's handle."""
        return int(self.raw.ptr)

    def synchronize(self) -> None:
        """Wait until all work of the stream is done; raises what its kernels found wrong."""
        asked("wait_for", self.raw, self.index)

    def query(self) -> bool:
        """Whether all work of the stream is done."""
        return bool(self.raw.done)

    def record_event(self, event: Event | None = None) -> Event:
        """Mark this point of the stream in ``event``, a new one by default."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let what is queued from now on wait for what ``event`` marks."""
        if not isinstance(event, Event):
            raise expected("wait_event", "an Event", event)
        self.raw.wait_event(event.raw)

    def wait_stream(self, stream: Stream) -> None:
        """Let what is queued from now on wait for what ``stream`` has queued so far."""
        self.wait_event(expected_stream("wait_stream", stream).record_event())

    def __enter__(self) -> Stream:
        block = StreamContext(self)
        block.__enter__()
        _ENTERED.blocks.setdefault(id(self), []).append(block)
        return self

    def __exit__(self, *error: object) -> None:
        blocks = _ENTERED.blocks[id(self)]
        block = blocks.pop()
        if not blocks:
            del _ENTERED.blocks[id(self)]
        block.__exit__(None, None, None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream) or self.index != other.index:
            return False
        return bool(self.raw.ptr == other.raw.ptr)

    def __hash__(self) -> int:
        return hash(self.raw.ptr)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:{self.index} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by the driver's handle."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        self.index = device_index(device)
        self.priority = 0
        self.raw = asked("external_stream", self.index, stream_ptr)


class Event:
    """A mark in a stream: to wait for, or to take the time between two.

    Args:
        enable_timing: whether :meth:`elapsed_time` can be asked.
        blocking: whether :meth:`synchronize` sleeps instead of spinning.
        interprocess: not available.
        external: not available.

    Example:
        >>> start, end = (cd.cuda.Event(enable_timing=True) for _ in range(2))  # doctest: +SKIP
        >>> start.record(); y = x @ x; end.record()  # doctest: +SKIP
        >>> end.synchronize(); start.elapsed_time(end)  # doctest: +SKIP
        0.42
    """

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        present()
        if external:
            raise NotImplementedError(
                "cuda.Event(external=True): an event that is recorded in a capture is the graph's"
            )
        if interprocess:
            raise NotImplementedError("cuda.Event(interprocess=True): events stay in one process")
        self.raw = asked("make_event", enable_timing, blocking)
        self.recorded = False
        self._timing, self._blocking, self._index = enable_timing, blocking, device_index(None)

    @property
    def device(self) -> Device | None:
        """The device of the stream in which it was recorded; None before that."""
        return Device("cuda", self._index) if self.recorded else None

    @property
    def cuda_event(self) -> int:
        """The driver's handle."""
        return int(self.raw.ptr)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the present end of ``stream``, the current one by default."""
        chosen = current_stream() if stream is None else stream
        if chosen.index != self._index:  # events belong to the device they were made on
            with present().on(chosen.index):
                self.raw = asked("make_event", self._timing, self._blocking)
            self._index = chosen.index
        asked("record_event", self.raw, chosen.raw, chosen.index)
        self.recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let what is queued on ``stream`` from now on wait for the mark."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether the work before the mark is done; True before the mark is made."""
        return not self.recorded or bool(self.raw.done)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two marks.

        Raises :class:`ArgumentError` (a ``ValueError``) unless both take time, were recorded, and
        are done.
        """
        both = (self, end_event)
        if not all(event._timing for event in both):
            raise ArgumentError(
                "Both events must be created with argument 'enable_timing=True'.",
                fix="cuda.Event(enable_timing=True)",
            )
        if not all(event.recorded for event in both):
            raise ArgumentError(
                "Both events must be recorded before calculating elapsed time.",
                fix="start.record(); ...; end.record()",
            )
        if not all(event.query() for event in both):
            raise ArgumentError(
                "Both events must be completed before calculating elapsed time.",
                fix="end.synchronize() first",
            )
        return float(asked("elapsed_time", self.raw, end_event.raw))

    def synchronize(self) -> None:
        """Wait until the work before the mark is done; raises what its kernels found wrong."""
        if self.recorded:
            asked("wait_for", self.raw, self._index)

    def ipc_handle(self) -> bytes:
        """Not available: events stay in one process."""
        raise NotImplementedError("cuda.Event.ipc_handle: events stay in one process")

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> Event:
        """Not available: events stay in one process."""
        raise NotImplementedError("cuda.Event.from_ipc_handle: events stay in one process")

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {'recorded' if self.recorded else 'uninitialized'}>"


def current_stream(device: Any = None) -> Stream:
    """The stream that work on a device is put on."""
    index = device_index(device)
    return Stream.of(asked("current_stream", index), index)


def default_stream(device: Any = None) -> Stream:
    """The stream that is current where no other was chosen."""
    index = device_index(device)
    return Stream.of(asked("default_stream", index), index)


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """:class:`ExternalStream`."""
    return ExternalStream(data_ptr, device)


def set_stream(stream: Stream | None) -> None:
    """Make ``stream`` the current one of its device; None changes nothing."""
    if stream is not None:
        asked("use_stream", stream.index, stream.raw)


@contextlib.contextmanager
def StreamContext(stream: Stream | None) -> Iterator[None]:
    """A block in which ``stream`` and its device are current; None changes nothing."""
    if stream is None or not is_available():
        yield
        return
    with asked("with_stream", stream.index, stream.raw):
        yield


def stream(stream: Stream | None) -> contextlib.AbstractContextManager[None]:
    """:class:`StreamContext` of ``stream``."""
    return StreamContext(stream)
