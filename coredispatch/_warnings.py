"""Warnings at the line of the program that a call stands in, whatever of ours lies between.

Texts are PyTorch's, to the letter: programs filter by them. PyTorch gives many of them once in a
process, until ``set_warn_always(True)``.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from coredispatch._frames import program_stacklevel

__all__ = [
    "WARN",
    "computed_again",
    "warn",
    "warn_of_jit",
    "warn_of_lost_imaginary",
    "warn_of_no_freedom",
    "warn_once",
]


class _State:
    """``always``: what is said once is said each time. ``given``: the texts that were."""

    def __init__(self) -> None:
        self.always = False
        self.given: set[str] = set()


WARN = _State()


class _Again(threading.local):
    depth = 0


_AGAIN = _Again()


@contextmanager
def computed_again() -> Iterator[None]:
    """A block that computes what the program did: it was warned there, at its own line.

    For this thread only, unlike ``warnings.catch_warnings``.
    """
    _AGAIN.depth += 1
    try:
        yield
    finally:
        _AGAIN.depth -= 1


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn, at the innermost line outside of coredispatch."""
    if _AGAIN.depth:
        return
    warnings.warn(text, category, stacklevel=program_stacklevel())


def warn_once(text: str, category: type[Warning] = UserWarning) -> None:
    """The same, the first time in this process."""
    if WARN.always or text not in WARN.given:
        WARN.given.add(text)
        warn(text, category)


def warn_of_no_freedom(name: str) -> None:
    """The warning of a moment that is not defined. The operator and its kernels give it."""
    warn(
        f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
        "reduction factor (input numel divided by output numel)."
    )


def warn_of_lost_imaginary() -> None:
    """The warning of a conversion from complex to real numbers."""
    warn_once("Casting complex values to real discards the imaginary part")


def warn_of_jit(name: str, advice: str = "use `torch.compile` instead") -> None:
    """The warning about all of PyTorch's ``jit``; what uses it inside the package does without.

    As in PyTorch it is of the package's own line, which Python does not show by default.
    """
    warnings.warn(
        f"`torch.jit.{name}` is deprecated. Please {advice}.", DeprecationWarning, stacklevel=1
    )
