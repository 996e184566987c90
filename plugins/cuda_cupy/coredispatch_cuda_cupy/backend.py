"""The backend ``cuda``: CuPy's arrays, and the details about the devices they lie on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coredispatch.plugin import (
    ArrayApiBackend,
    Backend,
    DType,
    DTypeError,
    NoDeviceError,
    dtypes,
    numpy_dtype,
)
from coredispatch_cuda_cupy import kernels
from coredispatch_cuda_cupy.detection import Detection, has_bfloat16
from coredispatch_cuda_cupy.namespace import Namespace

__all__ = ["CudaBackend", "NoArray"]


class NoArray:
    """The array type where there is no CuPy; nothing is an instance of it."""


class CudaBackend(ArrayApiBackend):
    """Dense arrays on CUDA devices, computed by CuPy.

    Args:
        detection: what was found; without a device the backend is listed, has no kernels and
            refuses tensors with the reason.
    """

    name = "cuda"
    views = True

    def __init__(self, detection: Detection) -> None:
        self.detection = detection
        self.cupy = detection.cupy
        self.array_type = NoArray if self.cupy is None else self.cupy.ndarray
        #: whether tensors may be bfloat16
        self.supports_bfloat16 = self.cupy is not None and has_bfloat16(self.cupy)
        if self.cupy is not None:
            self.xp = Namespace(self.cupy)
            self.overrides = kernels.overrides(self.cupy)

    @property
    def kernels(self) -> Mapping[str, Callable[..., Any]]:  # type: ignore[override]
        """The family kernels over CuPy with the overrides on top; none without a device."""
        if self.cupy is None:
            return {}
        if self._kernels is None:
            self._kernels = {
                name: kernels.guarded(name, kernel, self.native_dtype)
                for name, kernel in super().kernels.items()
            }
        return self._kernels

    # -- data ------------------------------------------------------------------------------

    def from_numpy(self, array: Any) -> Any:
        """A copy on the current device."""
        self.check_device(None)
        self.native_dtype(DType.of(array.dtype))
        return self.cupy.asarray(np.asarray(array, order="C"))

    def on(self, index: int) -> Any:
        """Makes device ``index`` current inside a ``with`` block."""
        return self.cupy.cuda.Device(index)

    def transfer(self, raw: Any, source: Backend, index: int, non_blocking: bool = False) -> Any:
        """A copy on the current device, ``index``; between two devices the driver makes it."""
        if source is self:
            return raw.copy()  # to the current device, whichever holds ``raw``
        return self.from_numpy(source.to_numpy(raw))

    def to_numpy(self, raw: Any) -> Any:
        """A copy in main memory; waits for the work that makes ``raw``."""
        with raw.device:
            return self.cupy.asnumpy(raw)

    def from_dlpack(self, exporter: Any) -> Any:
        """The array of another library on the same device, without a copy."""
        self.check_device(None)
        raw = self.cupy.from_dlpack(exporter)
        self.native_dtype(DType.of(raw.dtype))
        return raw

    def copyto(self, dst: Any, src: Any) -> None:
        """Write in place; refuses memory that several elements share, as NumPy does."""
        kernels.refuse_shared_memory(dst)
        with dst.device:
            dst[...] = src

    def scalar(self, value: Any, dtype: DType) -> Any:
        """The number: CuPy takes Python numbers as weak, but a float beside bfloat16."""
        return numpy_dtype(dtype).type(value) if dtype is dtypes.bfloat16 else value

    def native_dtype(self, dtype: DType) -> Any:
        """NumPy's dtype object; :class:`DTypeError` for one that this CuPy does not have."""
        if dtype is dtypes.bfloat16 and not self.supports_bfloat16:
            raise DTypeError(
                f"the backend 'cuda' has no bfloat16 with CuPy {self.cupy.__version__}",
                fix="install CuPy 14 or newer, or use float16 or float32",
            )
        if dtype.name.startswith("float8"):
            raise DTypeError(
                f"the backend 'cuda' has no {dtype}: CuPy has no such dtype",
                fix="keep it on the CPU, or convert it with x.half()",
            )
        return super().native_dtype(dtype)

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

    def set_float32_matmul_precision(self, precision: str) -> None:
        """``"highest"`` multiplies in float32, ``"high"`` and ``"medium"`` in TF32."""
        core = self.cupy._core
        tf32 = precision != "highest"
        kind = core.COMPUTE_TYPE_TF32 if tf32 else core.COMPUTE_TYPE_DEFAULT
        core.set_compute_type(np.float32, kind)

    # -- streams, as CuPy's own objects ----------------------------------------------------

    def make_stream(self, index: int, priority: int) -> Any:
        """A new stream of a device."""
        with self.on(index):
            return self.cupy.cuda.Stream(non_blocking=True, priority=priority)

    def external_stream(self, index: int, address: int) -> Any:
        """A stream around the driver's handle."""
        return self.cupy.cuda.ExternalStream(address, index)

    def current_stream(self, index: int) -> Any:
        """The stream that work on a device is put on."""
        return self.cupy.cuda.get_current_stream(index)

    def default_stream(self, index: int) -> Any:
        """The stream that is current at first."""
        return self.cupy.cuda.Stream.null

    def use_stream(self, index: int, stream: Any) -> None:
        """Make a stream the current one of its device."""
        with self.on(index):
            stream.use()

    def make_event(self, timing: bool, blocking: bool) -> Any:
        """A new event on the current device."""
        return self.cupy.cuda.Event(block=blocking, disable_timing=not timing)

    def elapsed_time(self, start: Any, end: Any) -> float:
        """Milliseconds between two events."""
        return float(self.cupy.cuda.get_elapsed_time(start, end))

    def nvtx(self, name: str, *args: Any) -> Any:
        """A function of CuPy's NVTX."""
        return getattr(self.cupy.cuda.nvtx, name)(*args)

    def memory(self, index: int = 0) -> dict[str, int]:
        """Bytes in use by arrays, held by CuPy's pool, free and present on the device."""
        self.check_device(index)
        with self.on(index):
            pool = self.cupy.get_default_memory_pool()
            free, total = self.cupy.cuda.runtime.memGetInfo()
            return {
                "allocated": int(pool.used_bytes()),
                "reserved": int(pool.total_bytes()),
                "free": int(free),
                "total": int(total),
            }

    def empty_cache(self) -> None:
        """Give the unused blocks of the pools of all devices back."""
        for index in range(self.device_count()):
            with self.on(index):
                self.cupy.get_default_memory_pool().free_all_blocks()
        if self.cupy is not None:
            self.cupy.get_default_pinned_memory_pool().free_all_blocks()

    def synchronize(self, index: int = 0) -> None:
        """Wait for all streams of the device."""
        self.check_device(index)
        self.cupy.cuda.Device(index).synchronize()

    def check_device(self, index: int | None) -> int:
        """``index`` (None: the current device) if it is there, else :class:`DeviceError`."""
        if self.cupy is None:
            raise NoDeviceError(f"no CUDA device: {self.detection.reason}", fix=self.detection.fix)
        if index is None:
            return int(self.cupy.cuda.runtime.getDevice())
        return super().check_device(index)

    def coerce(self, out: Any) -> Any:
        """Refuse what is no CuPy array: a silent copy to the device would hide a slow kernel."""
        raise DTypeError(
            f"the kernel returned {type(out).__name__}, not cupy.ndarray",
            fix="compute with CuPy all the way",
        )
