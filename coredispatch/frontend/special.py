"""Special functions: ``cd.special.NAME``, the operators of the namespace ``special``."""

from __future__ import annotations

from coredispatch.frontend.operators import operators

globals().update(operators("special"))
__all__ = sorted(operators("special"))
