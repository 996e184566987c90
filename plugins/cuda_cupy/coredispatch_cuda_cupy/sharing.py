"""Arrays that are made once and read by later calls, whatever stream these are on.

Such an array is kept by whoever made it. A stream that reads it waits for nothing, so it has to be
written when it is kept. During the capture of a graph nothing is written at all: a replay writes
it, into memory that the graph gives back one day. So what is made then is not kept.
"""

from __future__ import annotations

from typing import Any

__all__ = ["is_for_all_streams"]


def is_for_all_streams(cupy: Any) -> bool:
    """Whether what the current stream has made so far may be kept for other streams.

    Waits for the stream, so that it is there for all of them. False during a capture.

    Example:
        >>> made = cupy.ones(1)  # doctest: +SKIP
        >>> if is_for_all_streams(cupy):  # doctest: +SKIP
        ...     kept[device] = made
    """
    stream = cupy.cuda.get_current_stream()
    if stream.is_capturing():
        return False
    stream.synchronize()
    return True
