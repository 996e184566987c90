"""The communicator over NCCL, as CuPy has it (``cupy.cuda.nccl``): the backend ``nccl``.

The processes meet by the store: the first rank puts NCCL's identifier there. A call that the
program waits for is queued on its current stream; one in the background on a stream of the
communicator, which waits for the current one first. Who waits for a call, and what is done about
one that never ends, is in ``nccl_requests.py``.

NCCL has reductions of fewer types than the engine must serve: 16-bit integers travel as 32-bit
ones, complex sums as sums of real numbers. What it has no call for (gather, scatter, all_to_all,
parts of several sizes) is made of its ``send`` and ``recv`` in a group.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coredispatch.plugin import Communicator, GroupInfo, Request
from coredispatch_cuda_cupy import capture
from coredispatch_cuda_cupy.nccl_requests import Queued, Watch

__all__ = ["OPERATIONS", "TYPES", "NcclCommunicator", "create"]

#: NumPy's type -> what NCCL calls it
TYPES = {
    "int8": "NCCL_INT8", "uint8": "NCCL_UINT8", "int32": "NCCL_INT32", "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64", "uint64": "NCCL_UINT64", "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
}  # fmt: skip
_WIDER = {"int16": "int32", "uint16": "uint32"}
OPERATIONS = {"sum": "NCCL_SUM", "product": "NCCL_PROD", "min": "NCCL_MIN", "max": "NCCL_MAX"}
#: of a call that is not the program's: its name, whether it is in the background, and its seconds
_ALONE = ("call", False, 1800.0)
_ASK = 1.0  # seconds for other stuck ranks to say so


class NcclCommunicator(Communicator):
    """The processes of one group, each with a device of its own."""

    name = "nccl"
    device = "cuda"

    def __init__(self, cupy: Any, rank: int, size: int, store: Any, where: str) -> None:
        self._cupy, self._nccl = cupy, cupy.cuda.nccl
        self.rank, self.size, self._store, self._where = rank, size, store, where
        if rank == 0:
            store.set(f"{where}/id", np.array(self._nccl.get_unique_id(), np.int8).tobytes())
        known = np.frombuffer(store.get(f"{where}/id"), np.int8)
        self._comm = self._nccl.NcclCommunicator(size, tuple(known.tolist()), rank)
        #: the stream of calls in the background, and the stream and event of the last call
        self._own = cupy.cuda.Stream(non_blocking=True)
        self._last: tuple[Any, Any] | None = None
        self._call = _ALONE
        self.watch = Watch(cupy, where, self.abort)

    def call(self, name: str, args: tuple[Any, ...], background: bool, seconds: float) -> Request:
        """Begin the collective `name`, with `background` on a stream of its own."""
        self._call = name, background, seconds
        try:
            return super().call(name, args, background, seconds)
        finally:
            self._call = _ALONE

    def library(self) -> Any:
        return self._cupy

    # -- what NCCL takes ----------------------------------------------------------------------

    def _type(self, name: str) -> int:
        return int(getattr(self._nccl, TYPES[name]))

    def _bytes(self) -> int:
        return self._type("uint8")

    def _queue(
        self,
        *calls: Callable[[int], Any],
        arrays: Any = (),
        source: int = -1,
        after: Callable[[], None] | None = None,
    ) -> Request:
        """Put calls, as one group, on a stream; `after` puts on what is to be done with the result.

        NCCL's calls of one communicator follow each other, so a stream waits for the last call.
        """
        self.watch.check()
        current, graph = self._cupy.cuda.get_current_stream(), capture.current()
        name, background, seconds = self._call
        stream = self._own if background and graph is None else current
        if stream is not current:
            stream.wait_event(self._mark(current))
        if graph is None and self._last is not None and self._last[0].ptr != stream.ptr:
            stream.wait_event(self._last[1])
        grouped = len(calls) != 1
        if grouped:
            self._nccl.groupStart()
        try:
            for call in calls:
                call(stream.ptr)
        finally:
            if grouped:
                self._nccl.groupEnd()
        event = self._mark(stream)
        request = Queued(self._cupy, self.watch, event, stream, tuple(arrays), source, after)
        if graph is None:
            self._last = stream, event
            if stream is current:
                request.arrays = ()  # what is freed there is used again behind the call
            self.watch.add(request, name, seconds)
        else:
            graph.kept.append(request)
        return request

    def _mark(self, stream: Any) -> Any:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def _reducible(self, array: Any) -> tuple[Any, int, int]:
        """The array, or a wider copy, with its number of elements and NCCL's type."""
        if array.dtype.kind == "c":
            array = array.reshape(-1).view(array.real.dtype)
        wide = _WIDER.get(array.dtype.name)
        array = array if wide is None else array.astype(wide)
        return array, int(array.size), self._type(array.dtype.name)

    def _operation(self, op: str) -> int:
        return int(getattr(self._nccl, OPERATIONS[op]))

    # -- collectives --------------------------------------------------------------------------

    def all_reduce(self, array: Any, op: str) -> Request:
        if op not in OPERATIONS:
            return self._combined(array, op)
        work, count, kind = self._reducible(array)
        number = self._operation(op)
        return self._queue(
            lambda s: self._comm.allReduce(work.data.ptr, work.data.ptr, count, kind, number, s),
            arrays=(array, work),
            after=self._narrowing(array, work),
        )

    def _narrowing(self, array: Any, work: Any) -> Callable[[], None] | None:
        """What writes a wider copy back; None where there is none."""
        if work.dtype == array.dtype or array.dtype.kind == "c":
            return None

        def narrow() -> None:
            array[...] = work.astype(array.dtype)

        return narrow

    def _combined(self, array: Any, op: str, after: Callable[[], None] | None = None) -> Request:
        """Operations on bits, which NCCL has not: all values come to all ranks."""
        every = self._cupy.empty((self.size, *array.shape), array.dtype)
        combine = {
            "band": self._cupy.bitwise_and, "bor": self._cupy.bitwise_or,
            "bxor": self._cupy.bitwise_xor,
        }[op]  # fmt: skip

        def fold() -> None:
            total = every[0]
            for other in every[1:]:
                total = combine(total, other)
            array[...] = total
            if after is not None:
                after()

        return self._gathered(every, array, fold)

    def broadcast(self, array: Any, root: int) -> Request:
        at, size, kind = array.data.ptr, array.nbytes, self._bytes()
        return self._queue(
            lambda s: self._comm.broadcast(at, at, size, kind, root, s), arrays=(array,)
        )

    def reduce(self, array: Any, root: int, op: str) -> Request:
        if op not in OPERATIONS:
            return self._combined(array, op)
        work, count, kind = self._reducible(array)
        at, number = work.data.ptr, self._operation(op)
        return self._queue(
            lambda s: self._comm.reduce(at, at, count, kind, number, root, s),
            arrays=(array, work),
            after=self._narrowing(array, work),
        )

    def all_gather(self, out: Any, array: Any, counts: Sequence[int]) -> Request:
        if len(set(counts)) == 1:
            return self._gathered(out, array, None)
        return self._exchange(array, out, [array.size] * self.size, counts, everything=True)

    def _gathered(self, out: Any, array: Any, after: Callable[[], None] | None) -> Request:
        here, there, size = array.data.ptr, out.data.ptr, array.nbytes
        return self._queue(
            lambda s: self._comm.allGather(here, there, size, self._bytes(), s),
            arrays=(out, array),
            after=after,
        )

    def reduce_scatter(self, out: Any, array: Any, counts: Sequence[int], op: str) -> Request:
        if op not in OPERATIONS:
            copy = array.reshape(-1).copy()
            return self._combined(copy, op, lambda: self._keep_part(out, copy, counts))
        work, _, kind = self._reducible(array.reshape(-1))
        number = self._operation(op)
        parts = self._parts(work, [c * work.size // max(array.size, 1) for c in counts])
        own = self._cupy.empty(parts[self.rank].size, work.dtype)
        calls = [
            lambda s, r=r, part=part: self._comm.reduce(
                part.data.ptr, own.data.ptr if r == self.rank else part.data.ptr, part.size, kind,
                number, r, s,
            )
            for r, part in enumerate(parts)
        ]  # fmt: skip

        def keep() -> None:
            shaped = own.view(out.dtype) if out.dtype.kind == "c" else own.astype(out.dtype)
            out[...] = shaped.reshape(out.shape)

        return self._queue(*calls, arrays=(out, array, work, own), after=keep)

    def _keep_part(self, out: Any, array: Any, counts: Sequence[int]) -> None:
        out[...] = self._parts(array, counts)[self.rank].reshape(out.shape)

    def gather(self, out: Any, array: Any, counts: Sequence[int], root: int) -> Request:
        sizes = [array.size * (r == root) for r in range(self.size)]
        wanted = list(counts) if self.rank == root else [0] * self.size
        return self._exchange(array, out, sizes, wanted, everything=True)

    def scatter(self, out: Any, array: Any, counts: Sequence[int], root: int) -> Request:
        sizes = list(counts) if self.rank == root else [0] * self.size
        wanted = [out.size * (r == root) for r in range(self.size)]
        return self._exchange(array, out, sizes, wanted)

    def all_to_all(
        self, out: Any, array: Any, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> Request:
        return self._exchange(array, out, in_counts, out_counts)

    def _parts(self, array: Any, counts: Sequence[int]) -> list[Any]:
        flat, found, at = array.reshape(-1), [], 0
        for count in counts:
            found.append(flat[at : at + count])
            at += count
        return found

    def _exchange(
        self,
        array: Any,
        out: Any,
        sizes: Sequence[int],
        wanted: Sequence[int],
        *,
        everything: bool = False,
    ) -> Request:
        """Send ``sizes[r]`` elements to rank r (all of `array` with `everything`), and receive."""
        calls: list[Callable[[int], Any]] = []
        if array is not None:
            flat = array.reshape(-1)
            parts = [flat[:n] for n in sizes] if everything else self._parts(array, sizes)
            calls += [self._sending(part, r) for r, part in enumerate(parts) if part.size]
        if out is not None:
            parts = self._parts(out, wanted)
            calls += [self._receiving(part, r) for r, part in enumerate(parts) if part.size]
        return self._queue(*calls, arrays=(array, out))

    def _sending(self, part: Any, peer: int) -> Callable[[int], Any]:
        return lambda s: self._comm.send(part.data.ptr, part.nbytes, self._bytes(), peer, s)

    def _receiving(self, part: Any, peer: int) -> Callable[[int], Any]:
        return lambda s: self._comm.recv(part.data.ptr, part.nbytes, self._bytes(), peer, s)

    def barrier(self) -> Request:
        begun = self.all_reduce(self._cupy.zeros(1, np.int32), "sum")
        assert isinstance(begun, Queued)
        begun.on_host = True
        return begun

    def send(self, array: Any, dst: int, tag: int) -> Request:
        return self._queue(self._sending(array, dst), arrays=(array,))

    def recv(self, array: Any, src: int | None, tag: int) -> Request:
        if src is None:
            raise ValueError("NCCL receives from a named rank only\n  fix: recv(tensor, src=...)")
        return self._queue(self._receiving(array, src), arrays=(array,), source=src)

    # -- groups, and the end ------------------------------------------------------------------

    def split(self, ranks: Sequence[int], name: str) -> NcclCommunicator:
        rank = list(ranks).index(self.rank)
        where = f"{self._where}/{name}"
        return NcclCommunicator(self._cupy, rank, len(ranks), self._store, where)

    def late(self, number: int) -> Sequence[int]:
        """Those that do not say, within a second, that they are stuck in the call as well."""
        key = f"{self._where}/stuck/{number}"
        self._store.set(f"{key}/{self.rank}", b"1")
        silent = set(range(self.size)) - {self.rank}
        end = time.monotonic() + _ASK
        while silent and time.monotonic() < end:
            silent -= {rank for rank in silent if self._store.check([f"{key}/{rank}"])}
            time.sleep(0.01)
        return sorted(silent)

    def close(self) -> None:
        self.watch.close()
        comm, self._comm = self._comm, None
        if comm is not None:
            comm.destroy()

    def abort(self) -> None:
        self.watch.close()
        comm, self._comm = self._comm, None
        if comm is not None:
            comm.abort()


def create(info: GroupInfo) -> Communicator:
    """The communicator of the default group, on the current device.

    That is the one of LOCAL_RANK, unless the program has chosen another. Raises RuntimeError where
    there is no device, or CuPy has no NCCL.
    """
    from coredispatch_cuda_cupy import _detection

    found = _detection()
    if found.cupy is None:
        raise RuntimeError(
            f"the backend 'nccl' needs a CUDA device: {found.reason}\n  fix: {found.fix}"
        )
    if not getattr(found.cupy.cuda.nccl, "available", True):
        raise RuntimeError(
            "this CuPy cannot load NCCL\n  fix: pip install nvidia-nccl-cu12 (or -cu13)"
        )
    runtime = found.cupy.cuda.runtime
    if runtime.getDevice() == 0:
        local = int(os.environ.get("LOCAL_RANK", "0"))
        found.cupy.cuda.Device(local % found.count).use()
    return NcclCommunicator(found.cupy, info.rank, info.size, info.store, "nccl")
