"""NCCL over several devices of one process, for ``cd.cuda.nccl``.

A call is made for each device between ``groupStart`` and ``groupEnd``, as one thread makes all of
them. Communicators of a choice of devices are made once. Their calls follow each other, whatever
streams they are on.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

from coredispatch.plugin import DTypeError
from coredispatch_cuda_cupy.nccl import OPERATIONS, TYPES
from coredispatch_cuda_cupy.sharing import Order

__all__ = ["Together"]

#: what groups of processes let travel as other types
_HALVES = {"float16": "NCCL_FLOAT16", "bfloat16": "NCCL_BFLOAT16"}


class Together:
    """Calls over the devices of arrays.

    Args:
        cupy: the module.
        allocator: is told which streams work with an array.
    """

    def __init__(self, cupy: Any, allocator: Any) -> None:
        self.cupy, self.nccl, self.allocator = cupy, cupy.cuda.nccl, allocator
        self._made: dict[tuple[int, ...], Any] = {}
        #: by device the order of its calls
        self._orders: dict[int, Order] = {}
        self._lock = threading.Lock()

    def unique_id(self) -> bytes:
        """NCCL's identifier of a communicator to come."""
        return bytes(number & 255 for number in self.nccl.get_unique_id())

    def rank(self, count: int, uid: bytes, rank: int) -> Any:
        """The communicator of one of ``count`` ranks, on the current device."""
        numbers = tuple(byte - 256 if byte > 127 else byte for byte in uid)
        return self.nccl.NcclCommunicator(count, numbers, rank)

    def call(
        self,
        name: str,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        streams: Sequence[Any] | None,
        comms: Sequence[Any] | None,
        options: dict[str, Any],
    ) -> None:
        """One collective; ``outputs`` has one array, that of the root, for ``reduce``."""
        devices = tuple(int(x.device.id) for x in inputs)
        kind = self._type(name, inputs[0].dtype)
        given: list[Any] = [None] * len(devices) if streams is None else list(streams)
        with self._lock, ExitStack() as group:
            if comms is None:
                comms = self._communicators(devices)
            self.nccl.groupStart()
            group.callback(self.nccl.groupEnd)
            for k, (x, comm) in enumerate(zip(inputs, comms, strict=True)):
                # A rank that is not the root of a reduction gets nothing.
                out = outputs[k] if len(outputs) == len(inputs) else None
                out = outputs[0] if name == "reduce" and k == options["root"] else out
                with x.device, nullcontext() if given[k] is None else given[k]:
                    stream = self.cupy.cuda.get_current_stream()
                    self._orders.setdefault(devices[k], Order(self.cupy)).follow()
                    for array in (x, out):
                        if given[k] is not None and array is not None:
                            self.allocator.record(array, stream)
                    place = x.data.ptr if out is None else out.data.ptr
                    self._one(name, comm, (x.data.ptr, place), (x, out), kind, options, stream.ptr)

    def _one(
        self,
        name: str,
        comm: Any,
        places: tuple[int, int],
        arrays: tuple[Any, Any],
        kind: int,
        options: dict[str, Any],
        stream: int,
    ) -> None:
        count, op = int(arrays[0].size), 0
        if "operation" in options:
            op = int(getattr(self.nccl, OPERATIONS[options["operation"]]))
        if name == "all_reduce":
            comm.allReduce(*places, count, kind, op, stream)
        elif name == "reduce":
            comm.reduce(*places, count, kind, op, options["root"], stream)
        elif name == "broadcast":
            comm.broadcast(*places, count, kind, options["root"], stream)
        elif name == "all_gather":
            comm.allGather(*places, count, kind, stream)
        else:
            comm.reduceScatter(*places, int(arrays[1].size), kind, op, stream)

    def _communicators(self, devices: tuple[int, ...]) -> Any:
        if devices not in self._made:
            self._made[devices] = self.nccl.NcclCommunicator.initAll(list(devices))
        return self._made[devices]

    def _type(self, name: str, dtype: Any) -> int:
        known = (TYPES | _HALVES).get(dtype.name)
        if known is None or not hasattr(self.nccl, known):
            raise DTypeError(
                f"{name}: NCCL has no {dtype.name} here", fix="convert the tensors, x.float()"
            )
        return int(getattr(self.nccl, known))
