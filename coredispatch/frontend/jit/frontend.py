"""``jit.frontend``: the errors of what a compiled program may not contain."""

from __future__ import annotations

__all__ = ["FrontendError", "NotSupportedError", "UnsupportedNodeError"]


class FrontendError(Exception):
    """A program that cannot be compiled; the message shows file, line, column and the text."""


class NotSupportedError(FrontendError):
    """Something of Python that ``jit.script`` does not compile."""


class UnsupportedNodeError(NotSupportedError):
    """A statement or expression that ``jit.script`` does not compile."""
