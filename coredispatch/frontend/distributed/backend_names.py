"""Backends by name: which engines serve ``init_process_group("cpu:gloo,cuda:nccl")``."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.distributed.fake import fake_communicator
from coredispatch.frontend.distributed.sockets import socket_communicator
from coredispatch.frontend.distributed.threads import local_communicator
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.wiring import HOOKS

__all__ = ["Backend", "BackendConfig", "find_engine", "launched_by_mpi"]

#: variables by which processes of mpiexec know how many they are
_MPI_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE")


class Backend(str):
    """The name of a backend, in lower case. ``Backend.register_backend`` adds one.

    ``gloo`` is MPI where ``mpiexec`` (or ``coredispatch launch``) started the process, sockets
    elsewhere; ``mpi`` is MPI; ``socket`` and ``local`` and ``fake`` are what they say.
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    FAKE = "fake"
    LOCAL = "local"
    SOCKET = "socket"

    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE, LOCAL, SOCKET]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls,
        name: str,
        func: Callable[..., Any],
        extended_api: bool = False,
        devices: str | list[str] | None = None,
    ) -> None:
        """Let ``func(info)`` make the communicators of backend `name`.

        It gets a :class:`coredispatch.plugin.GroupInfo` and returns a
        :class:`coredispatch.plugin.Communicator`. Raises RuntimeError where the name is taken.
        """
        if name.lower() in TABLE.snapshot.communicators:
            raise RuntimeError(f"{name} c10d backend already exist\n  fix: choose another name")
        device = devices if isinstance(devices, str) else (devices or ["cpu"])[0]
        registrar = Registrar(f"distributed backend {name.lower()}")
        registrar.communicator(name.lower(), func, device)
        registrar.commit()
        setattr(cls, name.upper(), name.lower())
        if name.lower() not in cls.backend_list:
            cls.backend_list.append(name.lower())


class BackendConfig:
    """``device:backend`` pairs, from a name or from ``"cpu:gloo,cuda:nccl"``."""

    def __init__(self, backend: str) -> None:
        text = str(backend).lower()
        if text in ("", Backend.UNDEFINED):
            self.device_backend_map = dict(Backend.default_device_backend_map)
        elif ":" in text:
            self.device_backend_map = {}
            for pair in text.split(","):
                device, colon, name = pair.partition(":")
                if not (device and colon and name) or device in self.device_backend_map:
                    raise ValueError(
                        f"Invalid device:backend pairing: {pair!r} in {backend!r}\n"
                        "  fix: write 'cpu:gloo,cuda:nccl', each device once"
                    )
                self.device_backend_map[device] = name
        elif text == Backend.NCCL:
            self.device_backend_map = {"cuda": text}
        else:
            self.device_backend_map = {"cpu": text}

    def get_device_backend_map(self) -> dict[str, str]:
        """Device to backend."""
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{d}:{b}" for d, b in self.device_backend_map.items())


def launched_by_mpi() -> bool:
    """Whether a launcher of MPI started this process."""
    return any(name in os.environ for name in _MPI_SIZES)


def mpi_is_there() -> bool:
    """Whether the plugin and mpi4py are installed."""
    HOOKS.load_plugins()
    there = "mpi" in TABLE.snapshot.communicators
    return there and importlib.util.find_spec("mpi4py") is not None


def find_engine(name: str) -> tuple[str, Callable[..., Any], str]:
    """The engine that serves the backend called `name`: its own name, what makes it, its device.

    Raises ValueError for a name that nobody registered.
    """
    HOOKS.load_plugins()
    if name == Backend.GLOO:
        name = "mpi" if launched_by_mpi() and mpi_is_there() else "socket"
    found = TABLE.snapshot.communicators.get(name)
    if found is None:
        fix = {
            "mpi": "pip install coredispatch-mpi",
            "nccl": "a machine with CUDA and a plugin that brings NCCL; use 'gloo' for CPUs",
        }.get(name, f"there are gloo, {', '.join(sorted(TABLE.snapshot.communicators))}")
        raise ValueError(f"Invalid backend: {name!r} is not there\n  fix: {fix}")
    (create, device), _ = found
    return name, create, device


def register_built_in() -> None:
    """Put the engines that need no plugin into the table."""
    registrar = Registrar("distributed")
    registrar.communicator("local", local_communicator)
    registrar.communicator("fake", fake_communicator)
    registrar.communicator("socket", socket_communicator)
    registrar.commit()
