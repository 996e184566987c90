"""The communicator over mpi4py."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coredispatch.plugin import Communicator, GroupInfo, Request
from coredispatch_mpi.calls import Check
from coredispatch_mpi.installation import find_library
from coredispatch_mpi.requests import MPIRequest, Several
from coredispatch_mpi.shared_memory import shared_memory
from coredispatch_mpi.waiting import moving_on

__all__ = ["MPICommunicator", "world_communicator"]

_STUCK = 7  # the tag by which stuck ranks tell each other
_ASK = 1.0  # seconds to listen for other stuck ranks
# Bytes that are combined by one call. MPI takes as much memory for it, and what is above 32 MB
# comes from the system anew each time: 64 MB took 48 ms whole and 15 in such pieces.
_PIECE = 4 * 1024 * 1024


def _mpi() -> Any:
    """``mpi4py.MPI``, which initialises MPI. RuntimeError says what is missing."""
    if "MPI4PY_LIBMPI" not in os.environ:
        library = find_library()  # also where this environment looks into another one
        if library is not None:
            os.environ["MPI4PY_LIBMPI"] = library
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"the backend 'mpi' needs mpi4py and an MPI library: {error}\n"
            "  fix: pip install mpi4py mpich, or mpi4py alone where the site has an MPI"
        ) from error
    return MPI


def _operations(MPI: Any) -> dict[str, Any]:
    return {
        "sum": MPI.SUM,
        "product": MPI.PROD,
        "min": MPI.MIN,
        "max": MPI.MAX,
        "band": MPI.BAND,
        "bor": MPI.BOR,
        "bxor": MPI.BXOR,
    }


_extremes: dict[str, Any] = {}  # of this process: MPI has room for few operations


def _extreme(op: str, MPI: Any) -> Any:
    """The minimum or maximum of floating-point numbers, which is NaN where one of them is.

    What MPI's own give for NaN depends on the order of the ranks, and may differ between them.
    """
    if op not in _extremes:
        combine = np.minimum if op == "min" else np.maximum

        def act(given: Any, total: Any, datatype: Any) -> None:
            dtype = np.dtype(f"f{datatype.Get_size()}")
            known = np.frombuffer(total, dtype)
            combine(np.frombuffer(given, dtype), known, out=known)

        _extremes[op] = MPI.Op.Create(act, commute=True)
    return _extremes[op]


class MPICommunicator(Communicator):
    """Collectives of an MPI communicator, all non-blocking. See the base class."""

    name = "mpi"

    def __init__(self, comm: Any, MPI: Any) -> None:
        self._comm, self._MPI = comm, MPI
        # Both are made with the communicator: making one is collective.
        self._control: Any = comm.Dup()
        self._memory = shared_memory(comm, MPI.COMM_WORLD.Iprobe)
        self._ops = _operations(MPI)
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._broken = False

    def _under_way(
        self, request: Any, *arrays: Any, check: Check | None = None, **message: Any
    ) -> Request:
        return MPIRequest(request, arrays, self._MPI, check=check, **message)

    def _told(self, name: str, array: Any = None, **arguments: Any) -> Check | None:
        """Tell the other ranks of this machine of a call, before it begins."""
        return None if self._memory is None else self._memory.calls.begin(name, array, **arguments)

    def _operation(self, op: str, array: Any) -> Any:
        if array.dtype.kind == "f" and op in ("min", "max"):
            return _extreme(op, self._MPI)
        return self._ops[op]

    def _in_pieces(
        self, begin: Callable[[Any], Any], array: Any, check: Check | None = None
    ) -> Request:
        """A reduction that `begin` begins for each piece of `array`."""
        whole, length = array.reshape(-1), _PIECE // array.itemsize
        starts = range(0, max(whole.size, 1), length)
        begun = [begin(whole[at : at + length]) for at in starts]
        together = begun[0] if len(begun) == 1 else Several(begun)
        return self._under_way(together, array, check=check)

    def all_reduce(self, array: Any, op: str) -> Request:
        if self._memory is not None:
            return self._memory.all_reduce(array, op)
        operation, in_place = self._operation(op, array), self._MPI.IN_PLACE
        return self._in_pieces(
            lambda piece: self._comm.Iallreduce(in_place, piece, operation), array
        )

    def broadcast(self, array: Any, root: int) -> Request:
        check = self._told("broadcast", array, root=root)
        return self._under_way(self._comm.Ibcast(array, root), array, check=check)

    def reduce(self, array: Any, root: int, op: str) -> Request:
        check = self._told("reduce", array, root=root, op=op)
        operation, in_place = self._operation(op, array), self._MPI.IN_PLACE

        def begin(piece: Any) -> Any:
            if self.rank == root:
                return self._comm.Ireduce(in_place, piece, operation, root)
            return self._comm.Ireduce(piece, None, operation, root)

        return self._in_pieces(begin, array, check)

    def all_gather(self, out: Any, array: Any, counts: Sequence[int]) -> Request:
        check = self._told("all_gather", array, counts=counts)
        if len(set(counts)) == 1:
            begun = self._comm.Iallgather(array, out)
        else:
            begun = self._comm.Iallgatherv(array, _parts(out, counts))
        return self._under_way(begun, out, array, check=check)

    def reduce_scatter(self, out: Any, array: Any, counts: Sequence[int], op: str) -> Request:
        check = self._told("reduce_scatter", array, counts=counts, op=op)
        begun = self._comm.Ireduce_scatter(array, out, list(counts), self._operation(op, array))
        return self._under_way(begun, out, array, check=check)

    def gather(self, out: Any, array: Any, counts: Sequence[int], root: int) -> Request:
        check = self._told("gather", array, counts=counts, root=root)
        parts = None if out is None else _parts(out, counts)
        begun = self._comm.Igatherv(array, parts, root)
        return self._under_way(begun, out, array, check=check)

    def scatter(self, out: Any, array: Any, counts: Sequence[int], root: int) -> Request:
        check = self._told("scatter", out, counts=counts, root=root)
        parts = None if array is None else _parts(array, counts)
        begun = self._comm.Iscatterv(parts, out, root)
        return self._under_way(begun, out, array, check=check)

    def all_to_all(
        self, out: Any, array: Any, out_counts: Sequence[int], in_counts: Sequence[int]
    ) -> Request:
        check = self._told("all_to_all", array, counts=in_counts, received=out_counts)
        begun = self._comm.Ialltoallv(_parts(array, in_counts), _parts(out, out_counts))
        return self._under_way(begun, out, array, check=check)

    def barrier(self) -> Request:
        check = self._told("barrier")
        return self._under_way(self._comm.Ibarrier(), check=check)

    def send(self, array: Any, dst: int, tag: int) -> Request:
        return self._under_way(self._comm.Isend(array, dst, tag), array, peer=dst)

    def recv(self, array: Any, src: int | None, tag: int) -> Request:
        source = self._MPI.ANY_SOURCE if src is None else src
        begun = self._comm.Irecv(array, source, tag)
        return self._under_way(begun, array, peer=src, receives=True)

    def split(self, ranks: Sequence[int], name: str) -> MPICommunicator:
        everybody = self._comm.Get_group()
        chosen = everybody.Incl(list(ranks))
        tag = sum(name.encode()) % 32000  # members of several new groups meet by the right one
        with moving_on():
            made = MPICommunicator(self._comm.Create_group(chosen, tag), self._MPI)
        chosen.Free()
        everybody.Free()
        return made

    def late(self, number: int) -> Sequence[int]:
        """Those that do not say, within a second, that they are stuck as well."""
        self._broken = True
        self._leave_without_finalize()
        own = np.array([number], np.int64)
        others = [rank for rank in range(self.size) if rank != self.rank]
        told = [self._control.Isend(own, rank, _STUCK) for rank in others]
        heard = {rank: np.zeros(1, np.int64) for rank in others}
        coming = {r: self._control.Irecv(heard[r], r, _STUCK) for r in others}
        end = time.monotonic() + _ASK
        silent = set(others)
        while silent and time.monotonic() < end:
            silent -= {rank for rank in silent if coming[rank].Test()}
            time.sleep(0.01)
        self._last_words = (own, told, heard, coming)  # MPI may still use them
        behind = [r for r in others if r not in silent and heard[r][0] < number]
        return sorted({*silent, *behind})

    def _leave_without_finalize(self) -> None:
        """MPI_Finalize would wait for the call that nobody joins; the launcher ends the rest."""
        atexit.register(self._abort_at_exit)

    def _abort_at_exit(self) -> None:
        self._MPI.COMM_WORLD.Abort(1)

    def close(self) -> None:
        if self._broken or self._comm is None or self._MPI.Is_finalized():
            return
        self._control.Free()
        self._comm.Free()
        self._comm = None

    def abort(self) -> None:
        """Nothing is freed: calls may be under way."""
        self._comm = None


def _parts(array: Any, counts: Sequence[int]) -> list[Any]:
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).tolist()
    return [array, (list(counts), [int(start) for start in starts])]


def world_communicator(info: GroupInfo) -> MPICommunicator:
    """All processes of MPI's world, in the order of their ranks in the job.

    Raises RuntimeError where the job has another number of processes than MPI.
    """
    MPI = _mpi()
    world = MPI.COMM_WORLD
    if info.size not in (-1, world.Get_size()):
        raise RuntimeError(
            f"the job has {info.size} processes (WORLD_SIZE or world_size=), but MPI started "
            f"{world.Get_size()} together\n"
            "  fix: start them with `coredispatch launch --nproc-per-node N` or `mpiexec -n N "
            "python -m mpi4py`, or use the backend 'gloo', which needs no launcher"
        )
    key = world.Get_rank() if info.rank == -1 else info.rank
    return MPICommunicator(world.Split(0, key), MPI)
