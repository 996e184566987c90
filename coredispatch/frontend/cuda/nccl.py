"""NCCL, which process groups use (``distributed``, the backend ``nccl``); one process does not."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.cuda.devices import asked

__all__ = ["is_available", "version"]


def is_available(tensors: Any) -> bool:
    """False: devices of one process do not reduce by NCCL, see :mod:`coredispatch.cuda.comm`."""
    return False


def version() -> tuple[int, ...]:
    """The version of NCCL, such as ``(2, 27, 3)``.

    Raises :class:`NoDeviceError` without a device and RuntimeError where the backend has no NCCL.
    """
    found = asked("nccl_version")
    if found is None:
        raise RuntimeError(
            "cuda.nccl.version: CuPy has no NCCL\n  fix: pip install nvidia-nccl-cu12"
        )
    major, rest = divmod(int(found), 10000 if found >= 10000 else 1000)
    return (major, *divmod(rest, 100))
