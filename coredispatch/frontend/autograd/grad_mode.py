"""``coredispatch.autograd.grad_mode``: the modes of recording under their older path."""

from __future__ import annotations

from coredispatch.frontend.modes import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]

_MULTITHREADING = [True]


def is_multithreading_enabled() -> bool:
    """What :class:`set_multithreading_enabled` was told last."""
    return _MULTITHREADING[0]


class set_multithreading_enabled:
    """Whether a backward pass may use several threads; at once, and undone after a ``with``.

    It has no effect: a backward pass runs in the thread that calls it, whatever the devices.
    """

    def __init__(self, mode: bool) -> None:
        self.prev, self.mode = _MULTITHREADING[0], bool(mode)
        _MULTITHREADING[0] = self.mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _MULTITHREADING[0] = self.prev

    def clone(self) -> set_multithreading_enabled:
        """Another one with the same setting."""
        return type(self)(self.mode)
