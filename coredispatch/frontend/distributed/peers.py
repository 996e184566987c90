"""Collectives made of messages between two ranks: for threads and for sockets.

A :class:`Transport` sends and receives; the algorithms are here. All ranks combine in the order of
ranks, so they get the same bits. Calls that the user does not wait for run in a thread, in order.

Each message bears a label that says of which call it is (see ``labels``). A rank that gets another
call's raises, and lets the others know. Where data go one way only, as in a broadcast, an empty
message comes back, so that both ends have seen what the other calls.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coredispatch.frontend.distributed.communicator import Communicator, Done, LateError, Request
from coredispatch.frontend.distributed.labels import differing, label

__all__ = ["PeerCommunicator", "Transport"]

#: tags of collectives lie beside those of users' messages
_COLLECTIVE = -1
_NOTHING = memoryview(b"")


class Transport:
    """Messages between the ranks of a job. A channel keeps the groups apart."""

    rank: int

    def post(self, dst: int, channel: str, tag: int, data: memoryview, label: bytes) -> None:
        """Send; returns when ``data`` may be written again. See ``labels`` for the label."""
        raise NotImplementedError

    def take(
        self, src: int | None, channel: str, tag: int, seconds: float
    ) -> tuple[int, bytes | bytearray, bytes]:
        """The next message from `src`, or from anybody: who sent it, what, and its label.

        Raises LateError after `seconds`, ConnectionError when the sender is gone.
        """
        raise NotImplementedError

    def ready(self, src: int | None, channel: str, tag: int) -> bool:
        """Whether :meth:`take` would return at once."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop."""


class _Queued(Request):
    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.error: BaseException | None = None
        self.finished = threading.Event()

    def carry_out(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.error = error
        self.finished.set()

    def done(self) -> bool:
        return self.finished.is_set()

    def wait(self, seconds: float) -> None:
        if not self.finished.wait(seconds):
            raise LateError()
        if self.error is not None:
            raise self.error


class _Arrival(Request):
    """A message to be received into an array by whoever waits."""

    def __init__(self, communicator: PeerCommunicator, array: Any, src: int | None, tag: int):
        self.communicator, self.array, self.tag = communicator, array, tag
        self.sender = None if src is None else communicator.ranks[src]
        self.label = label("send", array)
        self.taken = False

    def done(self) -> bool:
        c = self.communicator
        if not self.taken and c.transport.ready(self.sender, c.channel, self.tag):
            self.wait(0.0)
        return self.taken

    def wait(self, seconds: float) -> None:
        if self.taken:
            return
        c = self.communicator
        try:
            sender, data, its = c.transport.take(self.sender, c.channel, self.tag, seconds)
        except LateError as late:
            raise LateError([c.ranks.index(rank) for rank in late.ranks]) from None
        if its != self.label:
            raise ValueError(differing(c.rank, self.label, c.ranks.index(sender), its))
        self.source = c.ranks.index(sender)
        _fill(self.array, data, self.source)
        self.taken = True


def _bytes_of(array: Any) -> memoryview:
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)


def _fill(array: Any, data: bytes | bytearray, sender: int) -> None:
    flat = array.reshape(-1)
    if len(data) != flat.nbytes:
        raise ValueError(
            f"rank {sender} of the group sent {len(data)} bytes, and {flat.nbytes} are expected: "
            "the ranks call with tensors of different sizes\n  fix: use shapes that fit, and the "
            "same dtype, on all ranks; see DISTRIBUTED_DEBUG=DETAIL"
        )
    flat[...] = np.frombuffer(data, array.dtype)


class PeerCommunicator(Communicator):
    """Collectives over a :class:`Transport`.

    Args:
        ranks: of the job, in the order of the group.
        channel: a name that no other group of the job has.
    """

    def __init__(self, name: str, transport: Transport, ranks: Sequence[int], channel: str) -> None:
        self.name = name  # type: ignore[misc]
        self.transport = transport
        self.ranks = list(ranks)
        self.channel = channel
        self.rank = self.ranks.index(transport.rank)
        self.size = len(self.ranks)
        self._deadline = 0.0
        self._queue: deque[_Queued] = deque()
        self._wake = threading.Condition()
        self._worker: threading.Thread | None = None
        self._running = False  # whether the worker is in a call
        self._number = 0  # of the collective that is carried out
        self._label = b""
        self._closed = False

    # -- running ------------------------------------------------------------------------------

    def call(self, name: str, args: tuple[Any, ...], background: bool, seconds: float) -> Request:
        if name in ("send", "recv"):
            request: Request = getattr(self, name)(*args)
            return request

        def run() -> None:
            self._deadline = time.monotonic() + seconds
            getattr(self, f"_{name}")(*args)

        with self._wake:
            if background or self._queue or self._running:
                queued = _Queued(run)
                self._queue.append(queued)
                if self._worker is None:
                    self._worker = threading.Thread(
                        target=self._work, daemon=True, name=f"collectives of {self.channel}"
                    )
                    self._worker.start()
                self._wake.notify()
                return queued
        run()
        return Done()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._running = False
                self._wake.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                item, self._running = self._queue.popleft(), True
            item.carry_out()
            del item

    def _begin(self, name: str, array: Any = None, **particulars: Any) -> None:
        """What the messages of a collective say about it. See ``labels.label``."""
        self._number += 1
        self._label = label(name, array, number=self._number, **particulars)

    def _put(self, dst: int, array: Any) -> None:
        data = _bytes_of(array)
        self.transport.post(self.ranks[dst], self.channel, _COLLECTIVE, data, self._label)

    def _tell(self, dst: int) -> None:
        """Send the label alone."""
        self.transport.post(self.ranks[dst], self.channel, _COLLECTIVE, _NOTHING, self._label)

    def _hear(self, src: int) -> bytes | bytearray:
        """The next message from a rank; ValueError where it is of another call."""
        left = max(self._deadline - time.monotonic(), 0.0)
        try:
            _, data, its = self.transport.take(self.ranks[src], self.channel, _COLLECTIVE, left)
        except LateError:
            raise LateError([src]) from None
        if its != self._label:
            for other in self._others():
                if other != src:  # it may wait for what this rank will not do any more
                    with contextlib.suppress(ConnectionError):
                        self._tell(other)
            raise ValueError(differing(self.rank, self._label, src, its))
        return data

    def _take(self, src: int, array: Any) -> None:
        _fill(array, self._hear(src), src)

    # -- messages -----------------------------------------------------------------------------

    def send(self, array: Any, dst: int, tag: int) -> Request:
        data = _bytes_of(array)
        self.transport.post(self.ranks[dst], self.channel, tag, data, label("send", array))
        return Done()

    def recv(self, array: Any, src: int | None, tag: int) -> Request:
        return _Arrival(self, array, src, tag)

    # -- collectives --------------------------------------------------------------------------

    def _others(self) -> list[int]:
        """The other ranks, each beginning with the next: nobody is asked by all at once."""
        return [(self.rank + step) % self.size for step in range(1, self.size)]

    def _all_reduce(self, array: Any, op: str) -> None:
        self._begin("all_reduce", array, op=op, count=array.size)
        flat = array.reshape(-1)
        counts = _shares(flat.size, self.size)
        if flat.size * flat.itemsize < 65536 or self.size == 2:
            gathered = np.empty((self.size, flat.size), flat.dtype)
            self._exchange(gathered.reshape(-1), flat, [flat.size] * self.size)
            _combine(flat, gathered, op)
            return
        part = np.empty(counts[self.rank], flat.dtype)
        self._combine_parts(part, flat, counts, op)
        self._exchange(flat, part, counts)

    def _broadcast(self, array: Any, root: int) -> None:
        self._begin("broadcast", array, root=root, count=array.size)
        if self.rank != root:
            self._tell(root)
            self._take(root, array)
        else:
            for dst in self._others():
                self._put(dst, array)
            for src in self._others():
                self._hear(src)

    def _reduce(self, array: Any, root: int, op: str) -> None:
        self._begin("reduce", array, root=root, op=op, count=array.size)
        flat = array.reshape(-1)
        gathered = np.empty((self.size, flat.size), flat.dtype) if self.rank == root else None
        self._collect(gathered, flat, [flat.size] * self.size, root)
        if gathered is not None:
            _combine(flat, gathered, op)

    def _all_gather(self, out: Any, array: Any, counts: Sequence[int]) -> None:
        self._begin("all_gather", array, count=sum(counts))
        self._exchange(out, array, counts)

    def _exchange(self, out: Any, array: Any, counts: Sequence[int]) -> None:
        """Send `array` to all; ``out`` becomes the arrays of all."""
        parts = _parts(out, counts)
        for dst in self._others():
            self._put(dst, array)
        parts[self.rank][...] = array.reshape(-1)
        for src in self._others():
            self._take(src, parts[src])

    def _reduce_scatter(self, out: Any, array: Any, counts: Sequence[int], op: str) -> None:
        self._begin("reduce_scatter", array, op=op, count=array.size)
        self._combine_parts(out, array, counts, op)

    def _combine_parts(self, out: Any, array: Any, counts: Sequence[int], op: str) -> None:
        """Send each rank its part of `array`, and combine what comes."""
        mine = [counts[self.rank]] * self.size
        gathered = np.empty((self.size, counts[self.rank]), array.dtype)
        self._exchange_parts(gathered.reshape(-1), array, mine, counts)
        _combine(out.reshape(-1), gathered, op)

    def _gather(self, out: Any, array: Any, counts: Sequence[int], root: int) -> None:
        self._begin("gather", array, root=root)
        self._collect(out, array, counts, root)

    def _collect(self, out: Any, array: Any, counts: Sequence[int], root: int) -> None:
        """``out`` of `root` becomes the arrays of all."""
        if self.rank != root:
            self._put(root, array)
            self._hear(root)
            return
        parts = _parts(out, counts)
        parts[root][...] = array.reshape(-1)
        for dst in self._others():
            self._tell(dst)
        for src in self._others():
            self._take(src, parts[src])

    def _scatter(self, out: Any, array: Any, counts: Sequence[int], root: int) -> None:
        self._begin("scatter", out, root=root)
        if self.rank != root:
            self._tell(root)
            self._take(root, out)
            return
        parts = _parts(array, counts)
        for dst in self._others():
            self._put(dst, parts[dst])
        out.reshape(-1)[...] = parts[root]
        for src in self._others():
            self._hear(src)

    def _all_to_all(
        self, out: Any, array: Any, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> None:
        self._begin("all_to_all", array)
        self._exchange_parts(out, array, out_counts, in_counts)

    def _exchange_parts(
        self, out: Any, array: Any, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> None:
        """Send the parts of `array` to the ranks; ``out`` is what came from them."""
        outgoing, coming = _parts(array, in_counts), _parts(out, out_counts)
        for dst in self._others():
            self._put(dst, outgoing[dst])
        coming[self.rank][...] = outgoing[self.rank]
        for src in self._others():
            self._take(src, coming[src])

    def _barrier(self) -> None:
        self._begin("barrier")
        for dst in self._others():
            self._tell(dst)
        for src in self._others():
            self._hear(src)

    # -- groups -------------------------------------------------------------------------------

    def split(self, ranks: Sequence[int], name: str) -> PeerCommunicator:
        chosen = [self.ranks[rank] for rank in ranks]
        return PeerCommunicator(self.name, self.transport, chosen, f"{self.channel}/{name}")

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self.channel == "":
            self.transport.close()


def _shares(count: int, size: int) -> list[int]:
    return [count // size + (rank < count % size) for rank in range(size)]


def _parts(array: Any, counts: Sequence[int]) -> list[Any]:
    flat, at, parts = array.reshape(-1), 0, []
    for count in counts:
        parts.append(flat[at : at + count])
        at += count
    return parts


def _combine(out: Any, gathered: Any, op: str) -> None:
    combine = Communicator.operations[op]
    with np.errstate(all="ignore"):
        total = gathered[0]
        for row in gathered[1:]:
            combine(total, row, out=total)
    out[...] = total
