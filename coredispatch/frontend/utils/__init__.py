"""``cd.utils``: the name under which PyTorch's users look for ``data`` and its kin."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["data"]


def __getattr__(name: str) -> Any:
    # Imported on first use: `import coredispatch` does not pay for multiprocessing.
    if name == "data":
        return importlib.import_module("coredispatch.utils.data")
    raise AttributeError(f"module 'coredispatch.utils' has no attribute {name!r}")
