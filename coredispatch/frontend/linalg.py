"""Linear algebra: ``cd.linalg.NAME``, the operators of the namespace ``linalg``."""

from __future__ import annotations

from coredispatch.frontend.operators import operators
from coredispatch.registry.model.errors import LinAlgError

globals().update(operators("linalg"))
__all__ = ["LinAlgError", *sorted(operators("linalg"))]
