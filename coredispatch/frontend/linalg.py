"""Linear algebra: ``cd.linalg.NAME``, the operators of the namespace ``linalg``."""

from __future__ import annotations

from coredispatch.frontend.operators import operators

globals().update(operators("linalg"))
__all__ = sorted(operators("linalg"))
