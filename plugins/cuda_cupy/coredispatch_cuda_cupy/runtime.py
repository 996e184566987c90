"""What ``cd.cuda`` asks of the backend: devices, memory, streams, copies, graphs."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError, Backend, OpError
from coredispatch_cuda_cupy import capture, cudnn, device_checks, forks
from coredispatch_cuda_cupy.cuda.eight_bits import plain
from coredispatch_cuda_cupy.detection import Detection
from coredispatch_cuda_cupy.graphs import CapturedGraph, Pools
from coredispatch_cuda_cupy.memory import Allocator
from coredispatch_cuda_cupy.pinned import Pinned
from coredispatch_cuda_cupy.streams import Streams

__all__ = ["Runtime"]

#: bytes from which an array is not staged: CuPy would keep as much page-locked memory
_STAGED = 16 << 20


class _Foreign:
    """A stream that another library made, as CuPy 14 asks for it."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


class Runtime(Backend):
    """The part of the backend that is about the machine and not about arithmetic."""

    cupy: Any
    detection: Detection
    #: what a read of values does: 0 nothing more, 1 warn, 2 raise
    debug_mode = 0
    #: whether this process was forked from the one that made the devices ready
    forked = False

    def prepare(self) -> None:
        """Memory, streams and graphs, where there is a device.

        CuPy's allocator becomes the one that knows streams, unless the program has set one.
        """
        cuda, pool = self.cupy.cuda, self.cupy.get_default_memory_pool()
        set_now = cuda.get_allocator()
        found = getattr(set_now, "allocator", getattr(set_now, "__self__", None))
        #: whether memory comes from our allocator, and not from one that the program has set
        self.owns_memory = found is pool or isinstance(found, Allocator)
        if isinstance(found, Allocator):  # another backend of this process put it there
            self.allocator = found
        else:
            self.allocator = Allocator(self.cupy, pool, self.detection.count)
        if found is pool:
            cuda.set_allocator(self.allocator.malloc)
        #: blocks that programs hold by their addresses
        self.lent: dict[int, Any] = {}
        self.pinned = Pinned(self.cupy)
        self.streams = Streams(self.cupy, self.allocator)
        self.pools = Pools(self.cupy, self.allocator)
        forks.watch(self)

    # -- devices ---------------------------------------------------------------------------

    def device_count(self) -> int:
        """Number of devices CUDA shows to this process."""
        return self.detection.count

    def device_name(self, index: int = 0) -> str:
        """The name the driver gives the device; without one, why there is none."""
        if self.cupy is None:
            return str(self.detection.reason)
        name = self.cupy.cuda.runtime.getDeviceProperties(index)["name"]
        return name.decode() if isinstance(name, bytes) else str(name)

    def device_index(self, raw: Any) -> int:
        """The device that holds ``raw``."""
        return int(raw.device.id)

    def current_device(self) -> int:
        """The device that new tensors go to."""
        self.check_device(None)
        return int(self.cupy.cuda.runtime.getDevice())

    def set_current_device(self, index: int) -> None:
        """Make a device the one that new tensors go to."""
        self.cupy.cuda.Device(index).use()

    def properties(self, index: int) -> dict[str, Any]:
        """The driver's details about a device, the common ones under PyTorch's names."""
        details = dict(self.cupy.cuda.runtime.getDeviceProperties(index))
        renamed = {
            "totalGlobalMem": "total_memory",
            "multiProcessorCount": "multi_processor_count",
            "warpSize": "warp_size",
            "l2CacheSize": "L2_cache_size",
            "sharedMemPerBlock": "shared_memory_per_block",
            "maxThreadsPerMultiProcessor": "max_threads_per_multi_processor",
            "regsPerMultiprocessor": "regs_per_multiprocessor",
            "integrated": "is_integrated",
            "isMultiGpuBoard": "is_multi_gpu_board",
        }
        details = {renamed.get(name, name): value for name, value in details.items()}
        return details | {"name": self.device_name(index)}

    def architectures(self) -> list[str]:
        """What NVRTC compiles kernels for, as ``sm_90``; one is compiled when it is used first."""
        return [f"sm_{arch}" for arch in self.cupy.cuda.nvrtc.getSupportedArchs()]

    def can_access_peer(self, index: int, peer: int) -> bool:
        """Whether one device can read the memory of another."""
        return bool(self.cupy.cuda.runtime.deviceCanAccessPeer(index, peer))

    def blas_handle(self) -> int:
        """The address of the cuBLAS handle of the current device."""
        return int(self.cupy.cuda.device.get_cublas_handle())

    def solver_handle(self) -> int:
        """The address of the cuSOLVER handle of the current device."""
        return int(self.cupy.cuda.device.get_cusolver_handle())

    def profile_start(self) -> None:
        """Let the driver's profiler record."""
        self.cupy.cuda.runtime.profilerStart()

    def profile_stop(self) -> None:
        """Let the driver's profiler record no longer."""
        self.cupy.cuda.runtime.profilerStop()

    def nvtx(self, name: str, *args: Any) -> Any:
        """A function of CuPy's NVTX."""
        return getattr(self.cupy.cuda.nvtx, name)(*args)

    def set_float32_matmul_precision(self, precision: str) -> None:
        """``"highest"`` multiplies in float32, ``"high"`` and ``"medium"`` in TF32."""
        core = self.cupy._core
        tf32 = precision != "highest"
        kind = core.COMPUTE_TYPE_TF32 if tf32 else core.COMPUTE_TYPE_DEFAULT
        core.set_compute_type(np.float32, kind)

    def cudnn_version(self) -> int | None:
        """The version of cuDNN, where its frontend is installed and finds it."""
        found = None if self.cupy is None else cudnn.frontend(self.cupy)
        return None if found is None else int(found.backend_version())

    def nccl_version(self) -> int | None:
        """The version of NCCL as it counts it, 22703 for 2.27.3; None where CuPy has none."""
        nccl = getattr(self.cupy.cuda, "nccl", None)
        if nccl is None or not getattr(nccl, "available", True):
            return None
        return int(nccl.get_version())

    @cached_property
    def _together(self) -> Any:
        # Which brings all of `distributed`, that few programs need.
        from coredispatch_cuda_cupy.nccl_devices import Together

        return Together(self.cupy, self.allocator)

    def nccl_unique_id(self) -> bytes:
        """NCCL's identifier of a communicator to come."""
        return bytes(self._together.unique_id())

    def nccl_rank(self, count: int, uid: bytes, rank: int) -> Any:
        """The communicator of one rank, on the current device."""
        return self._together.rank(count, uid, rank)

    def nccl_together(self, name: str, *call: Any) -> None:
        """A collective over devices of this process, see :mod:`.nccl_devices`."""
        self._together.call(name, *call)

    # -- memory ----------------------------------------------------------------------------

    def memory(self, index: int = 0) -> dict[str, int]:
        """Bytes in use by arrays, held by the pool, free and present on the device."""
        self.check_device(index)
        with self.on(index):
            free, total = self.cupy.cuda.runtime.memGetInfo()
            used = self.allocator.counts[index].current
            if not self.owns_memory:
                used = int(self.cupy.get_default_memory_pool().used_bytes())
            return {
                "allocated": used,
                "reserved": self.allocator.reserved(index),
                "free": int(free),
                "total": int(total),
            }

    def memory_statistics(self, index: int) -> dict[str, int]:
        """What was counted, under PyTorch's names.

        Raises :class:`ArgumentError` where the program has set an allocator of its own.
        """
        self._own_memory("memory_stats")
        with self.on(index):
            return self.allocator.statistics(index)

    def missing_statistic(self, name: str) -> str | None:
        """Why a statistic of PyTorch's is not among them; None for other names."""
        return self.allocator.missing(name)

    def reset_memory_peaks(self, index: int) -> None:
        """Let peaks begin with what there is now."""
        with self.on(index):
            self.allocator.reset_peaks(index)

    def reset_memory_totals(self, index: int) -> None:
        """Let the totals of what was allocated and freed begin anew."""
        self.allocator.reset_totals(index)

    def _own_memory(self, what: str) -> None:
        if not self.owns_memory:
            raise ArgumentError(
                f"cuda.{what}: the program has set CuPy's allocator itself, which counts nothing",
                fix="set no allocator before coredispatch is imported, or ask that allocator",
            )

    def set_memory_fraction(self, index: int, fraction: float) -> None:
        """Limit the pool of a device to a part of its memory."""
        with self.on(index):
            self.cupy.get_default_memory_pool().set_limit(fraction=fraction)

    def memory_fraction(self, index: int) -> float:
        """The part of the device's memory that its pool may hold; 1.0 without a limit."""
        with self.on(index):
            limit = int(self.cupy.get_default_memory_pool().get_limit())
            total = int(self.cupy.cuda.runtime.memGetInfo()[1])
        return limit / total if limit else 1.0

    def empty_cache(self) -> None:
        """Give the unused blocks of the pools of all devices back."""
        if self.cupy is None:
            return
        self.allocator.collect()
        for index in range(self.device_count()):
            with self.on(index):
                self.allocator.reserved(index)  # a peak
                self.cupy.get_default_memory_pool().free_all_blocks()
        self.pinned.release()
        self.cupy.get_default_pinned_memory_pool().free_all_blocks()

    def before_backward(self) -> None:
        """A backward pass begins: its stream waits for those of the forward pass."""
        self.allocator.follow()

    def record_stream(self, raw: Any, stream: Any) -> None:
        """``stream`` works with ``raw``: its memory is not used again before that is done."""
        self.allocator.record(raw, stream)

    def keep_pool(self, handle: tuple[int, int]) -> None:
        """Keep the pool of that name."""
        self.pools.enter(handle)

    def drop_pool(self, handle: tuple[int, int]) -> None:
        """Keep it no longer."""
        self.pools.leave(handle)

    def pool_users(self, handle: tuple[int, int]) -> int:
        """How many keep it."""
        return self.pools.users(handle)

    def memory_from(self, handle: tuple[int, int]) -> AbstractContextManager[None]:
        """A block in which this thread's memory comes from the pool of that name."""
        found: AbstractContextManager[None] = self.cupy.cuda.using_allocator(
            self.allocator.function(self.pools.named(handle))
        )
        return found

    def allocate(self, index: int, size: int, stream: Any) -> int:
        """The address of a block that is kept until :meth:`deallocate`."""
        with self.on(index):
            pointer = self.cupy.cuda.alloc(size)
        if stream is not None:
            self.allocator.record_pointer(pointer, stream)
        self.lent[int(pointer.ptr)] = pointer
        return int(pointer.ptr)

    def deallocate(self, place: int) -> None:
        """Give a block back; :class:`ArgumentError` where :meth:`allocate` did not give it."""
        if self.lent.pop(place, None) is None:
            raise ArgumentError(
                f"no block at {place:#x} was allocated by caching_allocator_alloc",
                fix="pass what it returned, once",
            )

    # -- copies ----------------------------------------------------------------------------

    def pin(self, array: Any) -> Any:
        """A NumPy array in page-locked memory: itself where it lies there."""
        self.check_device(None)
        return self.pinned.copy(array)

    def is_pinned(self, array: Any) -> bool:
        """Whether a NumPy array lies in page-locked memory."""
        return self.device_count() > 0 and self.pinned.holds(array)

    def from_host(self, array: Any, non_blocking: bool) -> Any:
        """A copy of a contiguous NumPy array on the current device.

        From page-locked memory the driver makes it on the current stream; that is waited for
        unless ``non_blocking``. A small array from elsewhere is staged in page-locked memory by
        CuPy, and nothing waits; of a large one the driver copies, and waits for, part after part.

        A graph that is captured makes the copy at each replay, and keeps the page-locked array. One
        number from elsewhere becomes a constant of the graph; for more :class:`OpError` is raised.
        """
        if array.dtype.names is not None:
            return self.from_host(plain(array), non_blocking).view(array.dtype)
        if not array.size:
            return self.cupy.empty(array.shape, array.dtype)
        pinned = self.pinned.holds(array)
        graph = capture.current()
        if graph is not None and not pinned and array.size == 1:
            value = array.item()
            value = float(value) if array.dtype.name == "bfloat16" else value
            return self.cupy.full(array.shape, value, array.dtype)
        if graph is not None and not pinned:
            raise OpError(
                "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU "
                "tensor is pinned.",
                fix="make the tensor before the capture, or pin_memory() and non_blocking=True",
            )
        if not pinned and array.nbytes < _STAGED:
            return self.cupy.asarray(array)
        made = self.cupy.empty(array.shape, array.dtype)
        stream = self.cupy.cuda.get_current_stream()
        if pinned:  # as `set` does, which refuses it during a capture
            made.data.copy_from_host_async(array.ctypes.data, array.nbytes, stream)
        else:
            made.set(array, stream)
        if pinned and non_blocking:
            self._keep(array, stream)
        elif pinned:
            stream.synchronize()
        return made

    def to_host(self, raw: Any) -> Any:
        """An array in page-locked memory that the current stream writes, later than this returns.

        Wait for the stream, or an event behind this, before it is read.
        """
        with raw.device:
            made = self.pinned.empty(raw.shape, np.dtype(raw.dtype))
            if raw.size:
                self._write_later(raw, made)
        return made

    def read_later(self, raw: Any, array: Any) -> bool:
        """Have the current stream write ``raw`` into a page-locked array of its shape and dtype.

        False, and nothing is done, where ``array`` is no such array.
        """
        same = raw.shape == array.shape and raw.dtype == array.dtype
        if not same or not array.flags.c_contiguous or not self.pinned.holds(array):
            return False
        with raw.device:
            self._write_later(raw, array)
        return True

    def _write_later(self, raw: Any, array: Any) -> None:
        """Have the current stream write ``raw`` into a page-locked array, also in a graph."""
        stream = self.cupy.cuda.get_current_stream()
        raw = plain(raw)
        raw = raw if raw.flags.c_contiguous else raw.copy()
        raw.data.copy_to_host_async(array.ctypes.data, array.nbytes, stream)
        self._keep(array, stream)

    def _keep(self, array: Any, stream: Any) -> None:
        """Keep a page-locked array for a copy on a stream, or for all replays of one."""
        graph = capture.current()
        if graph is None:
            self.pinned.until(self._mark(stream), array)
        else:
            graph.kept.append(array)

    def between_devices(self, raw: Any, index: int) -> Any:
        """A copy on device ``index``, the current one; nothing waits but the two streams."""
        if raw.dtype.names is not None:
            with raw.device:
                codes = plain(raw)
            return self.between_devices(codes, index).view(raw.dtype)
        if self.device_index(raw) == index:
            return raw.copy()
        cuda, target = self.cupy.cuda, self.cupy.cuda.get_current_stream()
        with raw.device:
            source = cuda.get_current_stream()
            raw = raw if raw.flags.c_contiguous else raw.copy()
            written = self._mark(source)
        made = self.cupy.empty(raw.shape, raw.dtype)
        if raw.size:
            target.wait_event(written)
            made.data.copy_from_device_async(raw.data, raw.nbytes, target)
            source.wait_event(self._mark(target))  # what is freed there now is still being read
        return made

    def _mark(self, stream: Any) -> Any:
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    # -- streams, as CuPy's own objects ----------------------------------------------------

    def make_stream(self, index: int, priority: int) -> Any:
        """A stream of a device; of each priority there are 32, which are given in turn."""
        return self.streams.make(index, priority)

    def stream_priorities(self) -> tuple[int, int]:
        """The least and the greatest priority."""
        return self.streams.priorities()

    def external_stream(self, index: int, address: int) -> Any:
        """A stream around the driver's handle."""
        adopt = getattr(self.cupy.cuda.Stream, "from_external", None)
        if adopt is None:  # before CuPy 14
            return self.cupy.cuda.ExternalStream(address, index)
        return adopt(_Foreign(address))

    def current_stream(self, index: int) -> Any:
        """The stream that this thread's work on a device is put on."""
        return self.cupy.cuda.get_current_stream(index)

    def default_stream(self, index: int) -> Any:
        """The stream that is current at first."""
        return self.cupy.cuda.Stream.null

    def use_stream(self, index: int, stream: Any) -> None:
        """Make a stream the current one of its device, for this thread."""
        self.streams.use(stream, index)

    def with_stream(self, index: int, stream: Any) -> AbstractContextManager[None]:
        """A block in which a device and a stream of it are current, for this thread."""
        return self.streams.current(stream, index)

    def make_event(self, timing: bool, blocking: bool) -> Any:
        """A new event on the current device."""
        return self.cupy.cuda.Event(block=blocking, disable_timing=not timing)

    def record_event(self, event: Any, stream: Any, index: int) -> None:
        """Mark the present end of a stream of device ``index``."""
        with self.on(index):
            event.record(stream)

    def elapsed_time(self, start: Any, end: Any) -> float:
        """Milliseconds between two events."""
        return float(self.cupy.cuda.get_elapsed_time(start, end))

    def synchronize(self, index: int = 0) -> None:
        """Wait for all streams of the device; raises what its kernels found wrong."""
        self.check_device(index)
        self.allocator.collect()  # what was freed so far is free behind this
        with self.on(index):
            self.cupy.cuda.Device(index).synchronize()
            device_checks.raise_pending(self.cupy)
        self.allocator.collect()

    def wait_for(self, mark: Any, index: int) -> None:
        """Wait for an event or a stream of device ``index``; raises what kernels found wrong."""
        mark.synchronize()
        with self.on(index):
            device_checks.raise_pending(self.cupy)

    def sync_debug_mode(self) -> int:
        """What a read of values does besides: 0 nothing, 1 warn, 2 raise."""
        return self.debug_mode

    def set_sync_debug_mode(self, mode: int) -> None:
        """Let a read of values warn or raise."""
        self.debug_mode = mode

    def report_wait(self) -> None:
        """Warn, or raise :class:`OpError`, that the program is about to wait for the device."""
        text = "called a synchronizing CUDA operation"
        if self.debug_mode == 2:
            raise OpError(text, fix="keep the value on the device, or set_sync_debug_mode(0)")
        warnings.warn(text, stacklevel=2)

    # -- graphs ----------------------------------------------------------------------------

    def make_graph(self) -> CapturedGraph:
        """A graph into which nothing was captured yet."""
        return CapturedGraph(self.cupy, self.pools)

    def graph_pool(self) -> tuple[int, int]:
        """A name for memory that graphs share."""
        return self.pools.handle()

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured."""
        return bool(self.cupy.cuda.get_current_stream().is_capturing())
