"""CUDA graphs: work of a stream captured once, and put on a stream again as one call."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from coredispatch.plugin import ArgumentError, Device, OpError, default_generator
from coredispatch_cuda_cupy import capture, device_checks, division
from coredispatch_cuda_cupy.generator import CapturedDraws, DeviceStream
from coredispatch_cuda_cupy.memory import Allocator

__all__ = ["CapturedGraph", "Pools"]


class Pools:
    """Memory that graphs write to: each has a pool of its own, or shares one by its handle.

    A replay writes where the capture wrote, so nothing else may get those blocks as long as the
    graph is there.
    """

    #: how many graphs are being captured, whatever pools theirs are of
    capturing = 0

    def __init__(self, cupy: Any, allocator: Allocator) -> None:
        self.cupy, self.allocator = cupy, allocator
        self._pools: dict[tuple[int, int], Any] = {}
        #: those that nobody keeps any more
        self._over: list[Any] = []
        self._users: dict[tuple[int, int], int] = {}
        self._next = 0

    def handle(self) -> tuple[int, int]:
        """A new name for a pool, to share among graphs."""
        self._next += 1
        return (0, self._next)

    def enter(self, handle: tuple[int, int]) -> Any:
        """The pool of that name, for one graph more."""
        if handle not in self._pools:
            pool = self._pools[handle] = self.cupy.cuda.MemoryPool()
            self.allocator.private.append(pool)
        self._users[handle] = self._users.get(handle, 0) + 1
        return self._pools[handle]

    def named(self, handle: tuple[int, int]) -> Any:
        """The pool of that name, which somebody keeps."""
        return self._pools[handle]

    def users(self, handle: tuple[int, int]) -> int:
        """How many keep the pool."""
        return self._users.get(handle, 0)

    def leave(self, handle: tuple[int, int]) -> None:
        """A graph is gone; with the last one its pool, but for blocks that arrays still hold."""
        self._users[handle] -= 1
        if not self._users[handle]:
            self._over.append(self._pools.pop(handle))
            self.free()

    def free(self) -> None:
        """Give back the pools that nobody keeps, once nothing is captured.

        ``cudaFree`` waits for the device, which ends a capture; garbage is collected at any time.
        """
        while self._over and not Pools.capturing:
            pool = self._over.pop()
            self.allocator.private.remove(pool)
            pool.free_all_blocks()


class CapturedGraph:
    """One graph.

    Args:
        cupy: the module.
        pools: where its memory comes from.
    """

    def __init__(self, cupy: Any, pools: Pools) -> None:
        self.cupy, self.pools = cupy, pools
        self.handle: tuple[int, int] | None = None
        self._graph: Any = None
        self._stream: Any = None
        #: by id random streams that draw in it, and CuPy's generators, whose states replays move on
        self.generators: dict[int, tuple[DeviceStream, Any]] = {}
        #: by id generators that draw by Philox in it
        self.draws: dict[int, CapturedDraws] = {}
        #: page-locked arrays that replays read and write
        self.kept: list[Any] = []
        #: arrays that replays read, and the numbers to write to them when the capture ends
        self.tables: list[tuple[Any, Any]] = []
        self._memory = ExitStack()

    def __del__(self) -> None:
        # Nobody replays it any more: its pool goes back, but for blocks that arrays hold.
        if self.__dict__.get("handle") is not None:
            if self._stream is None:
                self._forget_pool()
            else:  # nor ends its capture
                Pools.capturing -= 1

    def begin(self, handle: tuple[int, int] | None) -> None:
        """Capture what this thread puts on its current stream from here on.

        Raises :class:`OpError` on the default stream, and where something is captured already.
        """
        cuda = self.cupy.cuda
        stream = cuda.get_current_stream()
        if stream.ptr in (0, 1):
            raise OpError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, "
                "it's ok to replay them on the default stream.)",
                fix="with cd.cuda.graph(g): ..., which has a stream of its own",
            )
        if self._stream is not None or self._graph is not None:
            raise OpError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, "
                "create a new instance or call reset() before capturing.",
                fix="make a CUDAGraph for each capture",
            )
        device_checks.flag(self.cupy, "a captured graph")  # its memory is to outlive the graph
        division.prepare(self.cupy)
        default = default_generator(Device("cuda", int(cuda.runtime.getDevice())))
        default.stream(lambda seed: DeviceStream(self.cupy, seed)).prepare()
        self.handle = self.pools.handle() if handle is None else handle
        allocator, pool = self.pools.allocator, self.pools.enter(self.handle)
        try:
            # A pool that grows calls cudaMalloc, which the other modes of capture forbid.
            stream.begin_capture(cuda.runtime.streamCaptureModeRelaxed)
        except BaseException:  # it is captured already
            self._forget_pool()
            raise
        self._memory.enter_context(cuda.using_allocator(allocator.function(pool)))
        self._stream = stream
        Pools.capturing += 1
        capture.begin(self)

    def end(self) -> None:
        """Capture no more. Raises the driver's error where something forbidden was captured."""
        if self._stream is None:
            raise OpError("capture_end() without capture_begin()", fix="call capture_begin first")
        stream, self._stream = self._stream, None
        capture.end()
        self._memory.close()
        try:
            self._graph = stream.end_capture()
        except Exception:
            Pools.capturing -= 1
            self.reset()
            raise
        Pools.capturing -= 1
        self.pools.free()
        for array, numbers in self.tables:
            array.set(numbers)
        stream.synchronize()  # whatever stream replays are on

    def replay(self) -> None:
        """Put all of it on the current stream."""
        if self._graph is None:
            raise OpError(
                "Called CUDAGraph::replay without a preceding successful capture.",
                fix="capture with cd.cuda.graph(g) first",
            )
        device_checks.flag(self.cupy, "a captured graph")  # kernels in it may write to the flag
        for drawn, _ in self.generators.values():
            drawn.follow()
        for draws in self.draws.values():
            draws.advance()
        self._graph.launch()

    def table(self, numbers: Any) -> Any:
        """int64 numbers of the host as replays read them."""
        array = capture.lasting(self.cupy, len(numbers))
        self.tables.append((array, numbers))
        return array

    def draws_of(self, generator: Any) -> CapturedDraws:
        """What this graph draws with a generator by Philox."""
        found = self.draws.get(id(generator))
        if found is None:
            found = self.draws[id(generator)] = CapturedDraws(self.cupy, generator)
        return found

    def address(self) -> int:
        """The driver's handle of the graph as it is launched."""
        if self._graph is None:
            raise ArgumentError("nothing was captured", fix="capture first")
        return int(self._graph.graphExec)

    def text(self) -> str:
        """The graph in the DOT language."""
        if self._graph is None:
            raise ArgumentError("nothing was captured", fix="capture first")
        return str(self._graph.debug_dot_str())

    def reset(self) -> None:
        """Forget what was captured, and let go of its memory."""
        self._graph = None
        self.generators.clear()
        self.draws.clear()
        self.tables.clear()
        self.kept.clear()
        self._forget_pool()

    def _forget_pool(self) -> None:
        if self.handle is not None:
            handle, self.handle = self.handle, None
            self.pools.leave(handle)
