"""Whether the program wants the same bits from every run, and what is done where it cannot be."""

from __future__ import annotations

from typing import Final

from coredispatch._warnings import warn
from coredispatch.registry.model.errors import KernelError

__all__ = ["DETERMINISM", "alert_not_deterministic"]


class Determinism:
    """The setting of the process. ``fill``: new memory is filled where it is enabled."""

    def __init__(self) -> None:
        self.enabled: bool = False
        self.warn_only: bool = False
        self.fill: bool = True


DETERMINISM: Final = Determinism()


def alert_not_deterministic(caller: str) -> None:
    """Called by a kernel whose result is not the same in every run, before it computes.

    Raises :class:`KernelError`, a RuntimeError, where the program wants deterministic algorithms;
    warns if it asked for that.
    """
    if not DETERMINISM.enabled:
        return
    if DETERMINISM.warn_only:
        warn(
            f"{caller} does not have a deterministic implementation, but you set "
            "'torch.use_deterministic_algorithms(True, warn_only=True)'.",
        )
        return
    raise KernelError(
        f"{caller} does not have a deterministic implementation, but you set "
        "'torch.use_deterministic_algorithms(True)'",
        fix="turn it off just for this operation, or use warn_only=True if that is acceptable",
    )
