"""Operators of the table as nodes of ONNX, a module for each family.

Each module has ``TRANSLATIONS``: name of the operator -> function of the builder and the complete
arguments. An entry may be a pair ``(opset, function)``: from that version on; before it the
operator is decomposed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.onnx.translations.types import in_known_types

__all__ = ["Translation", "table"]

Translation = Callable[..., Any]
_FAMILIES = ("elementwise", "reduction", "shape", "indexing", "writes", "nn", "recurrent")


@functools.cache
def table(opset: int) -> dict[str, Translation]:
    """The translations of an opset."""
    found: dict[str, Translation] = {}
    for family in _FAMILIES:
        module = importlib.import_module(f"{__name__}.{family}")
        for name, entry in module.TRANSLATIONS.items():
            since, function = entry if isinstance(entry, tuple) else (0, entry)
            if opset >= since:
                found[name] = in_known_types(name, function)
    return found
