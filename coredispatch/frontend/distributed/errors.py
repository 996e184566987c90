"""What goes wrong between processes."""

from __future__ import annotations

from coredispatch.registry.model.errors import OpError

__all__ = [
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "QueueEmptyError",
]


class DistError(OpError):
    """Base of the errors of ``cd.distributed``; a RuntimeError."""

    __module__ = "coredispatch.distributed"

    def __init__(self, message: str = "", *, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.inside = ""  # the message names the collective: no operator is put in front


class DistBackendError(DistError):
    """A collective failed: it timed out, another rank is gone, or the ranks disagree."""

    __module__ = "coredispatch.distributed"


class DistNetworkError(DistError):
    """A connection could not be made, or broke."""

    __module__ = "coredispatch.distributed"


class DistStoreError(DistError):
    """A store did not answer in time, or refused."""

    __module__ = "coredispatch.distributed"


class QueueEmptyError(DistStoreError):
    """A queue of a store is empty and the caller did not want to wait."""

    __module__ = "coredispatch.distributed"
