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
from coredispatch_cuda_cupy import device_checks, kernels
from coredispatch_cuda_cupy.cuda.eight_bits import EightBits, plain
from coredispatch_cuda_cupy.detection import Detection, has_bfloat16
from coredispatch_cuda_cupy.forks import refusal
from coredispatch_cuda_cupy.memory_views import start_of, storage_bytes
from coredispatch_cuda_cupy.namespace import Namespace
from coredispatch_cuda_cupy.runtime import Runtime

__all__ = ["CudaBackend", "NoArray"]


class NoArray:
    """The array type where there is no CuPy; nothing is an instance of it."""


class CudaBackend(Runtime, ArrayApiBackend):
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
        self.array_type = NoArray if self.cupy is None else self.cupy.ndarray  # type: ignore[misc]
        #: whether tensors may be bfloat16
        self.supports_bfloat16 = self.cupy is not None and has_bfloat16(self.cupy)
        if self.cupy is not None:
            if self.supports_bfloat16:  # a CuPy that holds records of bytes
                self.storage_dtypes = dtypes.EIGHT_BIT_FLOATS
            self.eight_bits = EightBits(self.cupy)
            self.xp = Namespace(self.cupy)  # type: ignore[misc]
            self.overrides = kernels.overrides(self.cupy)
            self.prepare()

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
            if self.storage_dtypes:
                self._kernels |= self.eight_bits.kernels(self._kernels)
        return self._kernels

    # -- data ------------------------------------------------------------------------------

    def from_numpy(self, array: Any) -> Any:
        """A copy on the current device; the array may be written to when this returns."""
        self.check_device(None)
        self.native_dtype(DType.of(array.dtype))
        return self.from_host(np.asarray(array, order="C"), False)

    def on(self, index: int) -> Any:
        """Makes device ``index`` current inside a ``with`` block."""
        return self.cupy.cuda.Device(index)

    def transfer(self, raw: Any, source: Backend, index: int, non_blocking: bool = False) -> Any:
        """A copy on the current device, ``index``.

        From page-locked memory the driver makes it, on the current stream; unless
        ``non_blocking`` the memory may be written to again when this returns.
        """
        if source is self:
            return self.between_devices(raw, index)
        array = np.asarray(source.to_numpy(raw))
        self.native_dtype(DType.of(array.dtype))
        return self.from_host(np.asarray(array, order="C"), non_blocking)

    def to_numpy(self, raw: Any) -> Any:
        """A copy in main memory; waits for the work that makes ``raw``.

        Raises what kernels on the device found wrong until then.
        """
        if self.forked:
            raise refusal()
        if self.debug_mode:
            self.report_wait()
        with raw.device:
            array = self.cupy.asnumpy(plain(raw))
            device_checks.raise_pending(self.cupy)
        return array if raw.dtype.names is None else array.view(raw.dtype)

    def offset(self, raw: Any) -> int:
        """Elements between the start of the storage and the first element."""
        return start_of(raw) // int(raw.dtype.itemsize)

    def storage_bytes(self, raw: Any) -> int | None:
        """Bytes of the storage that ``raw`` lies in; None for what is no array."""
        return storage_bytes(raw) if type(raw) is self.array_type else None

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
            if dst.dtype != src.dtype and (dst.dtype.names or src.dtype.names):
                src = self.eight_bits.converted(src, dst.dtype)
            plain(dst)[...] = plain(src)

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
        if dtype in dtypes.STORAGE_DTYPES:
            self.check_dtypes(dtype)
        return super().native_dtype(dtype)

    # -- devices ---------------------------------------------------------------------------

    def check_device(self, index: int | None) -> int:
        """``index`` (None: the current device) if it is there, else :class:`DeviceError`."""
        if self.cupy is None:
            raise NoDeviceError(f"no CUDA device: {self.detection.reason}", fix=self.detection.fix)
        if self.forked:
            raise refusal()
        if index is None:
            return int(self.cupy.cuda.runtime.getDevice())
        return super().check_device(index)

    def coerce(self, out: Any) -> Any:
        """Refuse what is no CuPy array: a silent copy to the device would hide a slow kernel."""
        raise DTypeError(
            f"the kernel returned {type(out).__name__}, not cupy.ndarray",
            fix="compute with CuPy all the way",
        )
