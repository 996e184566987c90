"""``cd.distributed``: as in a PyTorch that was built without it, nothing is available.

What asks is answered, what would communicate raises NotImplementedError.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Any, NoReturn

from coredispatch.frontend.announced import announced_class, announced_function

__all__ = [
    "Backend",
    "GroupMember",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "get_backend",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_xccl_available",
    "isend",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
]

_FIX = "run one process; distributed.is_available() is False"


def is_available() -> bool:
    """False: there are no process groups yet."""
    return False


def is_initialized() -> bool:
    """False: there is no default process group."""
    return False


def is_nccl_available() -> bool:
    """False."""
    return False


def is_gloo_available() -> bool:
    """False."""
    return False


def is_mpi_available() -> bool:
    """False."""
    return False


def is_xccl_available() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher such as torchrun started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def _no_group(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises ValueError: there is no default process group."""
    raise ValueError(
        "Default process group has not been initialized, please make sure to call "
        "init_process_group."
    )


def get_rank(group: Any = None) -> int:
    """Raises ValueError, as in PyTorch without a process group."""
    _no_group()


def get_world_size(group: Any = None) -> int:
    """Raises ValueError, as in PyTorch without a process group."""
    _no_group()


def get_backend(group: Any = None) -> str:
    """Raises ValueError, as in PyTorch without a process group."""
    _no_group()


class ReduceOp(Enum):
    """How a collective combines values."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class GroupMember:
    """The groups that a process can name: none."""

    WORLD = None
    NON_GROUP_MEMBER = object()


class group:
    """``group.WORLD``: None while nothing is initialised."""

    WORLD = None


class Backend(str):
    """The name of a backend."""

    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    UNDEFINED = "undefined"


ProcessGroup = announced_class("distributed.ProcessGroup", _FIX)
Work = announced_class("distributed.Work", _FIX)
init_process_group = announced_function("distributed.init_process_group", _FIX)
new_group = announced_function("distributed.new_group", _FIX)
destroy_process_group = announced_function("distributed.destroy_process_group", _FIX)
barrier = announced_function("distributed.barrier", _FIX)
broadcast = announced_function("distributed.broadcast", _FIX)
broadcast_object_list = announced_function("distributed.broadcast_object_list", _FIX)
all_reduce = announced_function("distributed.all_reduce", _FIX)
all_gather = announced_function("distributed.all_gather", _FIX)
all_gather_into_tensor = announced_function("distributed.all_gather_into_tensor", _FIX)
all_gather_object = announced_function("distributed.all_gather_object", _FIX)
all_to_all = announced_function("distributed.all_to_all", _FIX)
reduce = announced_function("distributed.reduce", _FIX)
reduce_scatter = announced_function("distributed.reduce_scatter", _FIX)
gather = announced_function("distributed.gather", _FIX)
scatter = announced_function("distributed.scatter", _FIX)
send = announced_function("distributed.send", _FIX)
recv = announced_function("distributed.recv", _FIX)
isend = announced_function("distributed.isend", _FIX)
irecv = announced_function("distributed.irecv", _FIX)
