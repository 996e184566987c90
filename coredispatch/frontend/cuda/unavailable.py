"""Names of PyTorch's that stand for parts of CUDA which are not used: each refuses by name."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.cuda.devices import asked, present

__all__ = [
    "CUDAPluggableAllocator",
    "CudaError",
    "DeferredCudaCallError",
    "GreenContext",
    "check_error",
    "cudaStatus",
    "cudart",
    "current_solver_handle",
]


class CudaError(RuntimeError):
    """A code that the driver gave; CuPy raises errors of its own, which a ``KernelError`` wraps."""

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA error {code}")


class cudaStatus:
    """The driver's codes that PyTorch has names for."""

    SUCCESS: int = 0
    ERROR_NOT_READY: int = 34


class DeferredCudaCallError(Exception):
    """Never raised: no call waits for a device to be made ready."""


class _Refused:
    instead = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        present()
        raise NotImplementedError(f"cuda.{type(self).__name__}: {self.instead}")


class CUDAPluggableAllocator(_Refused):
    """Refused: memory is allocated by CuPy."""

    instead = "memory is allocated by CuPy; use cupy.cuda.set_allocator"


class GreenContext(_Refused):
    """Refused: multiprocessors are not divided."""

    instead = "the multiprocessors of a device are not divided here"


def cudart() -> Any:
    """Refused: the driver is CuPy's to call."""
    present()
    raise NotImplementedError("cuda.cudart: use cupy.cuda.runtime")


def check_error(res: int) -> None:
    """Raises :class:`CudaError` for a code that is not 0."""
    if res != 0:
        raise CudaError(res)


def current_solver_handle() -> int:
    """The address of the cuSOLVER handle of the current device."""
    return int(asked("solver_handle"))
