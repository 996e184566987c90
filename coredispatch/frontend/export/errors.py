"""The errors of ``cd.export``."""

from __future__ import annotations

from coredispatch.registry.model.errors import OpError

__all__ = ["GuardError", "UserError"]


class UserError(OpError):
    """A program, or what was said of its inputs, that cannot be exported."""


class GuardError(OpError, AssertionError):
    """An exported program is called with inputs that it does not hold for."""
