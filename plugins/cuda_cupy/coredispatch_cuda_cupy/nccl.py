"""The communicator over NCCL, as CuPy has it (``cupy.cuda.nccl``): the backend ``nccl``.

The processes meet by the store: the first rank puts NCCL's identifier there. A call is queued on
the current stream; waiting for it is waiting for an event behind it, with a limit. NCCL has
reductions of fewer types than the engine must serve: 16-bit integers travel as 32-bit ones,
complex sums as sums of real numbers. What it has no call for (gather, scatter, all_to_all, parts of
several sizes) is made of its ``send`` and ``recv`` in a group.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coredispatch.plugin import Communicator, GroupInfo, LateError, Request

__all__ = ["NcclCommunicator", "create"]

#: NumPy's type -> what NCCL calls it
_TYPES = {
    "int8": "NCCL_INT8", "uint8": "NCCL_UINT8", "int32": "NCCL_INT32", "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64", "uint64": "NCCL_UINT64", "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
}  # fmt: skip
_WIDER = {"int16": "int32", "uint16": "uint32"}
_OPERATIONS = {"sum": "NCCL_SUM", "product": "NCCL_PROD", "min": "NCCL_MIN", "max": "NCCL_MAX"}
_PAUSE = 0.0002
_ASK = 1.0  # seconds for other stuck ranks to say so


class _Queued(Request):
    """A call on a stream, and the event behind it."""

    def __init__(self, event: Any, arrays: tuple[Any, ...], source: int) -> None:
        self._event, self.source = event, source
        self._arrays: tuple[Any, ...] | None = arrays

    def done(self) -> bool:
        if self._arrays is not None and not self._event.done:
            return False
        self._arrays = None  # NCCL reads and writes them until then
        return True

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.done():
            if time.monotonic() > end:
                raise LateError()
            time.sleep(_PAUSE)


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

    def library(self) -> Any:
        return self._cupy

    # -- what NCCL takes ----------------------------------------------------------------------

    def _type(self, name: str) -> int:
        return int(getattr(self._nccl, _TYPES[name]))

    def _bytes(self) -> int:
        return self._type("uint8")

    def _queue(self, *calls: Callable[[int], Any], arrays: Any = (), source: int = -1) -> Request:
        """Put calls, as one group, on the current stream."""
        stream = self._cupy.cuda.get_current_stream()
        grouped = len(calls) != 1
        if grouped:
            self._nccl.groupStart()
        try:
            for call in calls:
                call(stream.ptr)
        finally:
            if grouped:
                self._nccl.groupEnd()
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return _Queued(event, tuple(arrays), source)

    def _reducible(self, array: Any) -> tuple[Any, int, int]:
        """The array, or a wider copy, with its number of elements and NCCL's type."""
        if array.dtype.kind == "c":
            array = array.reshape(-1).view(array.real.dtype)
        wide = _WIDER.get(array.dtype.name)
        array = array if wide is None else array.astype(wide)
        return array, int(array.size), self._type(array.dtype.name)

    def _operation(self, op: str) -> int:
        return int(getattr(self._nccl, _OPERATIONS[op]))

    # -- collectives --------------------------------------------------------------------------

    def all_reduce(self, array: Any, op: str) -> Request:
        if op not in _OPERATIONS:
            return self._combined(array, op)
        work, count, kind = self._reducible(array)
        number = self._operation(op)
        begun = self._queue(
            lambda s: self._comm.allReduce(work.data.ptr, work.data.ptr, count, kind, number, s),
            arrays=(array, work),
        )
        if work.dtype != array.dtype and array.dtype.kind != "c":
            array[...] = work.astype(array.dtype)  # behind it on the stream
        return begun

    def _combined(self, array: Any, op: str) -> Request:
        """Operations on bits, which NCCL has not: all values come to all ranks."""
        every = self._cupy.empty((self.size, *array.shape), array.dtype)
        begun = self.all_gather(every, array, [array.size] * self.size)
        combine = {
            "band": self._cupy.bitwise_and, "bor": self._cupy.bitwise_or,
            "bxor": self._cupy.bitwise_xor,
        }[op]  # fmt: skip
        total = every[0]
        for other in every[1:]:
            total = combine(total, other)
        array[...] = total
        return begun

    def broadcast(self, array: Any, root: int) -> Request:
        at, size, kind = array.data.ptr, array.nbytes, self._bytes()
        return self._queue(
            lambda s: self._comm.broadcast(at, at, size, kind, root, s), arrays=(array,)
        )

    def reduce(self, array: Any, root: int, op: str) -> Request:
        if op not in _OPERATIONS:
            return self._combined(array, op)
        work, count, kind = self._reducible(array)
        at, number = work.data.ptr, self._operation(op)
        begun = self._queue(
            lambda s: self._comm.reduce(at, at, count, kind, number, root, s), arrays=(array, work)
        )
        if work.dtype != array.dtype and array.dtype.kind != "c":
            array[...] = work.astype(array.dtype)
        return begun

    def all_gather(self, out: Any, array: Any, counts: Sequence[int]) -> Request:
        if len(set(counts)) == 1:
            here, there, size = array.data.ptr, out.data.ptr, array.nbytes
            return self._queue(
                lambda s: self._comm.allGather(here, there, size, self._bytes(), s),
                arrays=(out, array),
            )
        return self._exchange(array, out, [array.size] * self.size, counts, everything=True)

    def reduce_scatter(self, out: Any, array: Any, counts: Sequence[int], op: str) -> Request:
        if op not in _OPERATIONS:
            copy = array.reshape(-1).copy()
            begun = self._combined(copy, op)
            self._keep_part(out, copy, counts)
            return begun
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
        begun = self._queue(*calls, arrays=(out, array, work, own))
        shaped = own.view(out.dtype) if out.dtype.kind == "c" else own.astype(out.dtype)
        out[...] = shaped.reshape(out.shape)
        return begun

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
        return self.all_reduce(self._cupy.zeros(1, np.int32), "sum")

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
        if self._comm is not None:
            self._comm.destroy()
        self._comm = None

    def abort(self) -> None:
        if self._comm is not None:
            self._comm.abort()
        self._comm = None


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
