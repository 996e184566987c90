"""Arrays that are kept for later calls, whatever stream these are on.

An array that is made once and read by later calls is kept by whoever made it. A stream that reads
it waits for nothing, so it has to be written when it is kept. During the capture of a graph nothing
is written at all: a replay writes it, into memory that the graph gives back one day. So what is
made then is not kept.

What calls write as well is used by one stream after the other: :class:`Order`.
"""

from __future__ import annotations

from typing import Any

from coredispatch_cuda_cupy.capture import is_captured

__all__ = ["Order", "is_for_all_streams"]


def is_for_all_streams(cupy: Any) -> bool:
    """Whether what the current stream has made so far may be kept for other streams.

    Waits for the stream, so that it is there for all of them. False during a capture.

    Example:
        >>> made = cupy.ones(1)  # doctest: +SKIP
        >>> if is_for_all_streams(cupy):  # doctest: +SKIP
        ...     kept[device] = made
    """
    stream = cupy.cuda.get_current_stream()
    if is_captured(stream):
        return False
    stream.synchronize()
    return True


class Order:
    """Calls that read and write the same arrays, one after the other on whatever streams."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        #: the stream of the last call
        self.stream: Any = None

    def follow(self) -> None:
        """Let the current stream, which the next call is put on, wait for the last call."""
        stream, last = self.cupy.cuda.get_current_stream(), self.stream
        self.stream = stream
        # Of a stream that is captured nothing runs yet, and waiting would be captured with it.
        if last is not None and last.ptr != stream.ptr and not is_captured(last):
            event = self.cupy.cuda.Event(disable_timing=True)
            event.record(last)
            stream.wait_event(event)
