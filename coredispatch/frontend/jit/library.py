"""Which classes and functions are the library's own, whatever name they show."""

from __future__ import annotations

from typing import Any

from coredispatch.registry.model.spelling import SPELLING

__all__ = ["of_library"]


def of_library(thing: Any) -> bool:
    """Whether a class or function is defined here. Under the shim its module says ``torch``."""
    home = str(getattr(thing, "__module__", ""))
    return home.startswith("coredispatch.") or (
        SPELLING.package == "torch" and home.partition(".")[0] == "torch"
    )
