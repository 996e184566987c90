"""``cd.utils``: the name under which PyTorch's users look for ``data`` and its relatives."""

from __future__ import annotations

from coredispatch.frontend import data
from coredispatch.frontend.utils import checkpoint, dlpack, hooks
from coredispatch.frontend.utils.swapping import swap_tensors

__all__ = ["checkpoint", "data", "dlpack", "hooks", "swap_tensors"]
