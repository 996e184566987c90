"""Messages that have arrived and wait for somebody to take them."""

from __future__ import annotations

import threading
from collections import defaultdict, deque

from coredispatch.frontend.distributed.communicator import LateError

__all__ = ["Mailboxes"]


_Message = tuple[int, bytes | bytearray, bytes]  # who sent it, what, and its label


class Mailboxes:
    """What one rank was sent, by channel, tag and sender, in the order of arrival."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._boxes: dict[tuple[str, int], deque[_Message]]
        self._boxes = defaultdict(deque)
        self._gone: dict[int, str] = {}

    def put(self, src: int, channel: str, tag: int, data: bytes | bytearray, label: bytes) -> None:
        """A message has come."""
        with self._changed:
            self._boxes[channel, tag].append((src, data, label))
            self._changed.notify_all()

    def gone(self, rank: int, why: str) -> None:
        """Nothing more will come from `rank`."""
        with self._changed:
            self._gone.setdefault(rank, why)
            self._changed.notify_all()

    def _find(self, src: int | None, channel: str, tag: int) -> int:
        box = self._boxes.get((channel, tag), ())
        for i, (sender, _, _) in enumerate(box):
            if src is None or sender == src:
                return i
        return -1

    def ready(self, src: int | None, channel: str, tag: int) -> bool:
        """Whether there is such a message, or none can come any more."""
        with self._changed:
            return self._find(src, channel, tag) >= 0 or src in self._gone

    def take(self, src: int | None, channel: str, tag: int, seconds: float) -> _Message:
        """The oldest such message. LateError after `seconds`; ConnectionError if none can come."""
        with self._changed:

            def there() -> bool:
                gone = bool(self._gone) if src is None else src in self._gone
                return gone or self._find(src, channel, tag) >= 0

            there_in_time = self._changed.wait_for(there, seconds)
            at = self._find(src, channel, tag)
            if at < 0:
                if not there_in_time:
                    raise LateError([] if src is None else [src])
                rank, why = next((r, w) for r, w in self._gone.items() if src in (None, r))
                raise ConnectionError(f"rank {rank} is gone: {why}")
            box = self._boxes[channel, tag]
            found = box[at]
            del box[at]
            if not box:
                del self._boxes[channel, tag]
            return found
