"""Process groups over MPI for coredispatch, as the backend ``mpi``.

Loaded through the entry point ``mpi``. MPI itself is initialised when the first group is made.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from coredispatch.plugin import Registrar, hookimpl

if TYPE_CHECKING:
    from coredispatch.plugin import Communicator, GroupInfo

__all__ = ["create"]


def create(info: GroupInfo) -> Communicator:
    """The communicator of the default group.

    Raises RuntimeError where mpi4py or an MPI library is missing, or the numbers do not agree.
    """
    from coredispatch_mpi.communicator import world_communicator

    return world_communicator(info)


def coredispatch_info() -> dict[str, Any]:
    """What `coredispatch info` says; MPI is not initialised for it."""
    from coredispatch_mpi.installation import find_library, find_mpiexec

    found = importlib.util.find_spec("mpi4py") is not None
    return {
        "mpi4py": "installed" if found else "missing: pip install mpi4py",
        "library": find_library() or "the system's",
        "mpiexec": find_mpiexec() or "missing: pip install mpich",
    }


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Offer the engine."""
    registrar.communicator("mpi", create)
