"""``cd.utils``: the name under which PyTorch's users look for ``data`` and its relatives."""

from __future__ import annotations

from coredispatch.frontend import data
from coredispatch.frontend.utils import checkpoint

__all__ = ["checkpoint", "data"]
