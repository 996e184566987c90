"""``cd.Stream`` and ``cd.Event``: queues of work of any device.

Those of ``cuda`` are :class:`coredispatch.cuda.Stream` and its events. The CPU has done each call's
work when the call returns: its one stream is always finished, and its events are times.
"""

from __future__ import annotations

import time
from typing import Any

from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import DeviceError

__all__ = ["Event", "Stream"]


def _device(device: Any) -> Device:
    if device is None:
        from coredispatch.frontend import cuda

        return Device("cuda" if cuda.is_available() else "cpu")
    return Device(device)


def _need_known(device: Device, what: str) -> None:
    if device.type not in ("cpu", "cuda"):
        raise DeviceError(
            f"{what} of {str(device)!r}: there are those of 'cpu' and 'cuda'", fix="leave it out"
        )


class Stream:
    """A queue of work of a device; see the module.

    Args:
        device: CUDA by default, and the CPU where there is none.
        priority: for streams of ``cuda``.
    """

    def __new__(cls, device: Any = None, *, priority: int = 0, **options: Any) -> Any:
        found = _device(device)
        _need_known(found, "a stream")
        if found.type == "cuda":
            from coredispatch.frontend import cuda

            return cuda.Stream(found, priority)
        return super().__new__(cls)

    def __init__(self, device: Any = None, *, priority: int = 0, **options: Any) -> None:
        self.device = _device(device)
        self.device_index, self.device_type = -1, 0
        self.stream_id = 0

    def query(self) -> bool:
        """True: all work is done."""
        return True

    def synchronize(self) -> None:
        """Nothing: all work is done."""

    def wait_event(self, event: Any) -> None:
        """Nothing: what the event marks is done, if it is the CPU's; else wait for it."""
        event.synchronize()

    def wait_stream(self, stream: Any) -> None:
        """Wait for the other stream's work."""
        stream.synchronize()

    def record_event(self, event: Any = None) -> Any:
        """Mark this point in time in ``event``, a new one by default."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return hash((self.device.type, self.stream_id))

    def __repr__(self) -> str:
        return (
            f"torch.Stream device_type={self.device.type}, device_index={self.device_index}, "
            f"stream_id={self.stream_id}"
        )


class Event:
    """A mark in a stream: to wait for, or to take the time between two.

    Args:
        device: CUDA by default, and the CPU where there is none.
        enable_timing: whether :meth:`elapsed_time` can be asked.
    """

    def __new__(cls, device: Any = None, *, enable_timing: bool = False, **options: Any) -> Any:
        found = _device(device)
        _need_known(found, "an event")
        if found.type == "cuda":
            from coredispatch.frontend import cuda

            return cuda.Event(enable_timing=enable_timing, **options)
        return super().__new__(cls)

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **options: Any) -> None:
        self.device = _device(device)
        self.enable_timing = enable_timing
        self.event_id = 0
        self._time: float | None = None

    def record(self, stream: Any = None) -> None:
        """Mark this point in time."""
        self._time = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Nothing: what was marked is done."""

    def query(self) -> bool:
        """True: what was marked is done."""
        return True

    def synchronize(self) -> None:
        """Nothing: what was marked is done."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two marks. Raises RuntimeError unless both are made, with timing."""
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return 1000 * (end_event._time - self._time)

    def __repr__(self) -> str:
        return f"torch.Event device_type={self.device.type}, device_index=-1, event_id=0"
