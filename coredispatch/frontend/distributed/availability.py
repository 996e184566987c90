"""What this process could communicate by: engines that are installed, launchers that started it."""

from __future__ import annotations

import os

from coredispatch.frontend.distributed import backend_names
from coredispatch.frontend.distributed.backend_names import Backend
from coredispatch.frontend.distributed.reductions import ReduceOp

__all__ = [
    "get_default_backend_for_device",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "supports_complex",
]


def is_available() -> bool:
    """True: sockets, threads and simulated ranks need nothing else."""
    return True


def is_nccl_available() -> bool:
    """Whether a plugin brings NCCL."""
    return is_backend_available("nccl")


def is_gloo_available() -> bool:
    """True: "gloo" means MPI where MPI launched the process, sockets elsewhere."""
    return True


def is_mpi_available() -> bool:
    """Whether the plugin coredispatch-mpi and mpi4py are installed."""
    return backend_names.mpi_is_there()


def is_ucc_available() -> bool:
    """False."""
    return False


def is_xccl_available() -> bool:
    """False."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether `backend` can be given to ``init_process_group``."""
    if backend.lower() == Backend.MPI:
        return is_mpi_available()
    try:
        backend_names.find_engine(backend.lower())
    except ValueError:
        return False
    return True


def is_torchelastic_launched() -> bool:
    """Whether a launcher such as ``coredispatch launch`` started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def get_default_backend_for_device(device: object) -> str:
    """``"gloo"`` for the CPU, ``"nccl"`` for CUDA. ValueError for another device."""
    name = str(getattr(device, "type", device)).partition(":")[0]
    if name not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[name]


def supports_complex(reduceOp: object) -> bool:
    """Whether the operation takes complex tensors: sums and averages do."""
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG)
