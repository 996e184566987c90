"""Which CUDA devices there are, and which is the current one.

Every question is answered also where there is no device: 0, False or an empty list, or a
:class:`NoDeviceError` (an ``AssertionError`` and a ``RuntimeError``) that says why there is none
and what to do.
"""

from __future__ import annotations

import contextlib
from typing import Any

from coredispatch.frontend.device_modules import DeviceModule

__all__ = [
    "DeviceProperties",
    "can_device_access_peer",
    "clock_rate",
    "current_blas_handle",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_sync_debug_mode",
    "has_half",
    "has_magma",
    "init",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "memory_usage",
    "power_draw",
    "set_device",
    "set_sync_debug_mode",
    "synchronize",
    "temperature",
    "utilization",
]

#: the backend has float16 kernels; whether there is a device is :func:`is_available`
has_half = True
#: MAGMA is not used
has_magma = False


#: what is the same for the device of any plugin
_CUDA = DeviceModule("cuda")

backend_or_none = _CUDA._backend
present = _CUDA._present
asked = _CUDA._asked
device_index = _CUDA._index


def is_available() -> bool:
    """Whether the plugin is loaded and sees a device."""
    return device_count() > 0


def device_count() -> int:
    """Number of CUDA devices, 0 without the plugin."""
    return _CUDA.device_count()


def init() -> None:
    """Nothing to do: a device is made ready when it is used first. Refuses where there is none."""
    present()


def is_initialized() -> bool:
    """Whether there is a device that can be used."""
    return is_available()


def device(device: Any) -> contextlib.AbstractContextManager[None]:
    """A block in which the device (a number, ``"cuda:1"`` or a Device) is the current one.

    Tensors that ask for ``"cuda"`` are then made there. None and -1 change nothing.
    """
    return _CUDA.device(device)


def device_of(obj: Any) -> contextlib.AbstractContextManager[None]:
    """:func:`device` for the device of a tensor; nothing changes for one that is elsewhere."""
    return device(obj.device if getattr(obj, "is_cuda", False) else None)


def set_device(device: Any) -> None:
    """Make a device the current one; -1 changes nothing. :func:`device` is the better choice."""
    _CUDA.set_device(device)


def current_device() -> int:
    """Index of the current device."""
    return _CUDA.current_device()


def synchronize(device: Any = None) -> None:
    """Wait until the device has done all its work."""
    _CUDA.synchronize(device)


# ---- properties ----------------------------------------------------------------------------------


#: what PyTorch shows of a device, in its order
_SHOWN = ("name", "major", "minor", "total_memory", "multi_processor_count", "L2_cache_size")


class DeviceProperties:
    """Details about a device: ``name``, ``major``, ``minor``, ``total_memory`` and others."""

    def __init__(self, details: dict[str, Any]) -> None:
        self.__dict__.update(details)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the driver's properties have no {name!r}: {sorted(self.__dict__)}")

    def __repr__(self) -> str:
        shown = []
        for name in _SHOWN:
            if name in self.__dict__:
                value = self.__dict__[name]
                in_megabytes = name in ("total_memory", "L2_cache_size")
                shown.append(f"{name}={f'{value // 2**20}MB' if in_megabytes else repr(value)}")
        return f"_CudaDeviceProperties({', '.join(shown)})"


def get_device_name(device: Any = None) -> str:
    """The hardware's name."""
    return _CUDA.get_device_name(device)


def get_device_properties(device: Any = None) -> DeviceProperties:
    """The driver's details about a device."""
    return DeviceProperties(asked("properties", device_index(device)))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability, ``(major, minor)``."""
    details = get_device_properties(device)
    return details.major, details.minor


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one device can read the memory of another."""
    return bool(asked("can_access_peer", device_index(device), device_index(peer_device)))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the backend takes bfloat16: with CuPy 14 or newer. False without a device.

    Without ``including_emulation``: whether the current device also computes in it, which those of
    compute capability 8.0 and higher do.
    """
    backend = backend_or_none()
    if not is_available() or not getattr(backend, "supports_bfloat16", False):
        return False
    return including_emulation or get_device_capability()[0] >= 8


def is_tf32_supported() -> bool:
    """Whether the current device multiplies in TF32: compute capability 8.0 or higher."""
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    """Architectures that kernels can be compiled for; empty without a device.

    No kernel is compiled beforehand: NVRTC compiles one for the device when it is used first.
    """
    return list(asked("architectures")) if is_available() else []


def get_gencode_flags() -> str:
    """The flags that NVCC would take for :func:`get_arch_list`; empty without a device."""
    numbers = [name.partition("_")[2] for name in get_arch_list()]
    return " ".join(f"-gencode compute=compute_{n},code=sm_{n}" for n in numbers)


def current_blas_handle() -> int:
    """The address of the cuBLAS handle of the current device."""
    return int(asked("blas_handle"))


def ipc_collect() -> None:
    """Nothing to do: no device memory is shared between processes. Refuses without a device."""
    present()


_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def get_sync_debug_mode() -> int:
    """0, 1 or 2, see :func:`set_sync_debug_mode`. Refuses without a device."""
    return int(asked("sync_debug_mode"))


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What reading values of the device does: nothing (0, ``"default"``), warn (1), raise (2).

    Seen are ``item``, ``tolist``, ``numpy``, ``bool``, ``print`` and copies to the CPU that wait.
    Kernels of CuPy that wait by themselves, for the number of results of ``nonzero`` say, are not.
    """
    mode = _DEBUG_MODES.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode {debug_mode!r}, expected one of `default`, `warn`, "
            "`error`"
        )
    asked("set_sync_debug_mode", mode)


def list_gpu_processes(device: Any = None) -> str:
    """Asks nvidia-ml-py, which is not used here: says so, as PyTorch does where it is missing."""
    return "pynvml module not found, please install nvidia-ml-py"


def _from_nvml(what: str) -> Any:
    def query(device: Any = None) -> int:
        raise ModuleNotFoundError(
            f"cuda.{what} asks nvidia-ml-py, which coredispatch does not use; "
            f"run `nvidia-smi` instead"
        )

    query.__name__ = query.__qualname__ = what
    query.__doc__ = "Not available: asked of the driver's tool ``nvidia-smi`` instead."
    return query


utilization = _from_nvml("utilization")
memory_usage = _from_nvml("memory_usage")
temperature = _from_nvml("temperature")
power_draw = _from_nvml("power_draw")
clock_rate = _from_nvml("clock_rate")
