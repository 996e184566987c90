"""``cupy.cuda.nccl`` over threads: it reads and writes the memory at the addresses it is given.

It has NCCL's types and operations and no others, and NCCL's rule that the calls between
``groupStart`` and ``groupEnd`` are one.
"""

from __future__ import annotations

import ctypes
import itertools
import queue
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from stand_in_streams import MACHINE, State, stream_at

__all__ = ["make_nccl"]

TYPES = {
    "INT8": np.int8, "UINT8": np.uint8, "INT32": np.int32, "UINT32": np.uint32,
    "INT64": np.int64, "UINT64": np.uint64, "FLOAT16": np.float16, "FLOAT32": np.float32,
    "FLOAT64": np.float64,
}  # fmt: skip
KINDS = dict(enumerate(TYPES.values()))
OPERATIONS = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum}
COMBINE = dict(enumerate(OPERATIONS.values()))


def memory(address: int, count: int, kind: int) -> np.ndarray:
    """The array at an address."""
    dtype = np.dtype(KINDS[kind])
    size = count * dtype.itemsize
    if not size:
        return np.empty(0, dtype)
    assert address, "no memory was given"
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(dtype)


class Captured:
    """A call in a graph, which replays make."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def run(self, kind: str = "real") -> None:
        if kind == "real":
            self.call()


class Hub:
    """Where the ranks of one identifier meet; of a communicator that was aborted nobody waits."""

    def __init__(self, size: int, parties: int | None = None) -> None:
        self.barrier = threading.Barrier(size if parties is None else parties)
        self.slots: list[Any] = [None] * size
        self.boxes: dict[tuple[int, int], queue.Queue[bytes]] = {
            pair: queue.Queue() for pair in itertools.product(range(size), repeat=2)
        }

    def every(self, rank: int, value: np.ndarray) -> list[np.ndarray]:
        self.slots[rank] = value.copy()
        self.barrier.wait()
        found = list(self.slots)
        self.barrier.wait()
        return found


class OneProcess:
    """The communicators of devices of one process: a group has a call for each of them."""

    def __init__(self, devices: list[int]) -> None:
        self.devices = devices
        self.calls: list[Any] = [None] * len(devices)

    def called(self, rank: int, call: Any, stream: int) -> None:
        assert State.device == self.devices[rank], "the device of the rank is not current"
        assert self.calls[rank] is None, "a rank is called twice in a group"
        self.calls[rank] = *call, stream_at(stream).queue

    def launch(self) -> None:
        """Each stream comes to the call when all do."""
        calls, self.calls = self.calls, [None] * len(self.devices)
        assert None not in calls, "a rank is missing in a group: the others would wait for ever"
        assert len({name for name, *_ in calls}) == 1
        numbers: list[int] = []
        ran: list[bool] = []

        def meet(rank: int) -> None:
            if ran or not (MACHINE.delayed or rank == len(calls) - 1):
                return
            ran.append(True)
            for other, (*_, line) in enumerate(calls):
                if MACHINE.delayed and other != rank:
                    line.run_to(numbers[other] - 1)
            sources = [memory(*source).copy() for _, source, _, _ in calls]
            for other, (name, _, (place, count, kind, rest), _) in enumerate(calls):
                self._give(name, other, sources, memory(place, count, kind), *rest)

        for rank, (*_, line) in enumerate(calls):
            numbers.append(line.put(lambda rank=rank: meet(rank)))

    @staticmethod
    def _give(name: str, rank: int, sources: Any, out: Any, op: int = 0, root: int = -1) -> None:
        total = sources[0]
        if name in ("allReduce", "reduce", "reduceScatter"):
            for other in sources[1:]:
                total = COMBINE[op](total, other)
        if name == "allReduce" or (name == "reduce" and rank == root):
            out[...] = total
        elif name == "broadcast":
            out[...] = sources[root]
        elif name == "allGather":
            out[...] = np.concatenate(sources)
        elif name == "reduceScatter":
            out[...] = total[rank * out.size : (rank + 1) * out.size]


def make_nccl() -> Any:
    """A module of its own for each test."""
    hubs: dict[tuple[int, ...], Hub] = {}
    making, numbers = threading.Lock(), itertools.count(1)
    group = threading.local()

    def run(order: int, call: Callable[[], None], stream: int) -> None:
        """On the stream, now or at the end of the group: sends, then reductions, then receipts."""
        target, waiting = stream_at(stream), getattr(group, "calls", None)

        def put() -> None:
            if target.graph is not None:
                target.graph.calls.append(Captured(call))
            else:
                target.queue.put(call)

        if waiting is None:
            put()
        else:
            waiting.append((order, put))

    def start() -> None:
        group.calls, group.together = [], []

    def end() -> None:
        calls, group.calls = group.calls, None
        for _, call in sorted(calls, key=lambda item: item[0]):
            call()
        for together in dict.fromkeys(group.together):
            together.launch()

    class NcclCommunicator:
        def __init__(self, ndev: int, commId: tuple[int, ...], rank: int) -> None:
            assert isinstance(commId, tuple) and len(commId) == 128
            with making:
                self.hub = hubs.setdefault(commId, Hub(ndev))
            self.rank, self.size = rank, ndev

        def combined(self, address: int, count: int, kind: int, op: int) -> Any:
            every = self.hub.every(self.rank, memory(address, count, kind))
            total = every[0]
            for other in every[1:]:
                total = COMBINE[op](total, other)
            return total

        def allReduce(self, src, dst, count, kind, op, stream):
            def call() -> None:
                memory(dst, count, kind)[...] = self.combined(src, count, kind, op)

            run(1, call, stream)

        def reduce(self, src, dst, count, kind, op, root, stream):
            def call() -> None:
                total = self.combined(src, count, kind, op)
                if self.rank == root:
                    memory(dst, count, kind)[...] = total

            run(1, call, stream)

        def broadcast(self, src, dst, count, kind, root, stream):
            def call() -> None:
                memory(dst, count, kind)[...] = self.hub.every(self.rank, memory(src, count, kind))[
                    root
                ]

            run(1, call, stream)

        def allGather(self, src, dst, count, kind, stream):
            def call() -> None:
                every = self.hub.every(self.rank, memory(src, count, kind))
                memory(dst, count * self.size, kind)[...] = np.concatenate(every)

            run(1, call, stream)

        def send(self, src, count, kind, peer, stream):
            box = self.hub.boxes[self.rank, peer]
            run(0, lambda: box.put(memory(src, count, kind).tobytes()), stream)

        def recv(self, dst, count, kind, peer, stream):
            def call() -> None:
                data = self.hub.boxes[peer, self.rank].get()
                memory(dst, count, kind)[...] = np.frombuffer(data, KINDS[kind])

            run(2, call, stream)

        def destroy(self) -> None:
            self.hub = None

        def abort(self) -> None:
            self.hub = Hub(self.size, parties=1)

    class OfOneProcess:
        def __init__(self, together: OneProcess, rank: int) -> None:
            self.together, self.rank = together, rank

        def _call(self, name, source, target, stream):
            group.together.append(self.together)
            self.together.called(self.rank, (name, source, target), stream)

        def allReduce(self, src, dst, count, kind, op, stream):
            self._call("allReduce", (src, count, kind), (dst, count, kind, (op,)), stream)

        def reduce(self, src, dst, count, kind, op, root, stream):
            self._call("reduce", (src, count, kind), (dst, count, kind, (op, root)), stream)

        def broadcast(self, src, dst, count, kind, root, stream):
            self._call("broadcast", (src, count, kind), (dst, count, kind, (0, root)), stream)

        def allGather(self, src, dst, count, kind, stream):
            whole = count * len(self.together.devices)
            self._call("allGather", (src, count, kind), (dst, whole, kind, ()), stream)

        def reduceScatter(self, src, dst, count, kind, op, stream):
            whole = count * len(self.together.devices)
            self._call("reduceScatter", (src, whole, kind), (dst, count, kind, (op,)), stream)

    def init_all(devices: list[int]) -> list[OfOneProcess]:
        together = OneProcess(devices)
        return [OfOneProcess(together, rank) for rank in range(len(devices))]

    NcclCommunicator.initAll = staticmethod(init_all)
    module = types.ModuleType("cupy.cuda.nccl")
    module.available = True
    module.get_version = lambda: 22703
    module.NcclCommunicator, module.groupStart, module.groupEnd = NcclCommunicator, start, end
    module.get_unique_id = lambda: (next(numbers) - 128, *[-1] * 127)
    for i, name in enumerate(TYPES):
        setattr(module, f"NCCL_{name}", i)
    for i, name in enumerate(OPERATIONS):
        setattr(module, f"NCCL_{name}", i)
    return module
