"""Streams: queues of work on a device. Work of one stream runs in order, streams run beside
each other.

They are CuPy's streams with PyTorch's names. CuPy's memory pool hands a freed block back to the
stream it was used on; an array used on a second stream must stay alive until that stream has
waited (:meth:`Stream.wait_stream`) or was synchronized.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.plugin import Device, DeviceError

__all__ = ["Stream", "current_stream", "stream"]


def _cupy() -> Any:
    from coredispatch_cuda_cupy import _detection

    found = _detection()
    if found.cupy is None:
        raise DeviceError(f"no CUDA device: {found.reason}", fix=found.fix)
    return found.cupy


def device_number(cupy: Any, device: Any) -> int:
    """The index that ``device`` (None, int, "cuda:1" or Device) stands for."""
    if device is None:
        return int(cupy.cuda.runtime.getDevice())
    if isinstance(device, int):
        return device
    device = Device(device)
    if device.type != "cuda":
        raise DeviceError(f"a stream is on a CUDA device, not on {device}", fix="use 'cuda:0'")
    return device_number(cupy, device.index)


class Stream:
    """A queue of work on one device.

    Args:
        device: the device, the current one by default.
        priority: -1 runs before 0 where both have work.

    Raises :class:`DeviceError` where there is no CUDA device.
    """

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        cupy = _cupy()
        self.index = device_number(cupy, device)
        with cupy.cuda.Device(self.index):
            self.raw = cupy.cuda.Stream(non_blocking=True, priority=priority)

    @classmethod
    def of(cls, raw: Any, index: int) -> Stream:
        """A stream around one of CuPy's."""
        made = cls.__new__(cls)
        made.raw, made.index = raw, index
        return made

    @property
    def device(self) -> Device:
        """The device the stream is on."""
        return Device("cuda", self.index)

    def synchronize(self) -> None:
        """Wait until all work of the stream is done."""
        self.raw.synchronize()

    def query(self) -> bool:
        """Whether all work of the stream is done."""
        return bool(self.raw.done)

    def wait_stream(self, other: Stream) -> None:
        """Let what is queued here from now on wait for what ``other`` has queued so far."""
        self.raw.wait_event(other.raw.record())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.raw.ptr == other.raw.ptr

    def __hash__(self) -> int:
        return hash(self.raw.ptr)

    def __repr__(self) -> str:
        return f"<Stream device=cuda:{self.index} at {self.raw.ptr:#x}>"


def current_stream(device: Any = None) -> Stream:
    """The stream that work on ``device`` (default: the current one) is put on."""
    cupy = _cupy()
    index = device_number(cupy, device)
    return Stream.of(cupy.cuda.get_current_stream(index), index)


@contextmanager
def stream(chosen: Stream | None) -> Iterator[None]:
    """Make ``chosen`` and its device current inside the block; None changes nothing."""
    if chosen is None:
        yield
        return
    with _cupy().cuda.Device(chosen.index), chosen.raw:
        yield
