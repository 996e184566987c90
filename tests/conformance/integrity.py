"""The suite and its reference must be what they were: a backend runs in the same process.

A kernel that replaces an assertion of the suite, or the NumPy function it is judged by, would
otherwise certify itself. What was replaced is named, and put back before the next case.
"""

from __future__ import annotations

import importlib
import math
import sys
from operator import is_
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

__all__ = ["Seal"]

_ROOT = __name__.rpartition(".")[0]
#: modules of the suite whose functions decide what a case is worth
_JUDGES = ("bounds", "case", "checks", "context", "expectations", "covering_array", "distributions")
_JUDGES += ("reference", "runner", "subject", "levels", "variations")
_JUDGES += ("exact", "growth", "process_state")
_FUNCTIONS = (FunctionType, BuiltinFunctionType, np.ufunc, type)


class Seal:
    """The functions and classes of the suite, of NumPy and of ``math``, as they were when made."""

    def __init__(self) -> None:
        from . import checks

        checks.load()
        modules = [importlib.import_module(f"{_ROOT}.{name}") for name in _JUDGES]
        modules += [sys.modules[f"{_ROOT}.checks.{name}"] for name in checks.MODULES]
        self._kept: list[tuple[Any, dict[str, Any]]] = []
        for module in (*modules, np, np.linalg, math):
            self._keep(module)
        # How each owner is looked at after every case: what its names gave, and what gives them.
        self._looks = [
            (o.__dict__.get, tuple(kept), tuple(kept.values())) for o, kept in self._kept
        ]

    def _keep(self, module: ModuleType) -> None:
        held = {k: v for k, v in vars(module).items() if isinstance(v, _FUNCTIONS)}
        self._kept.append((module, held))
        for value in held.values():
            if isinstance(value, type) and value.__module__ == module.__name__:
                methods = (FunctionType, property, classmethod, staticmethod)
                own = {k: v for k, v in vars(value).items() if isinstance(v, methods)}
                self._kept.append((value, own))

    def broken(self) -> list[str]:
        """The names of what was replaced since, put back as they were."""
        if all(all(map(is_, map(now, names), held)) for now, names, held in self._looks):
            return []
        found = []
        for owner, kept in self._kept:
            for name, value in kept.items():
                if owner.__dict__.get(name) is not value:
                    found.append(f"{owner.__name__}.{name}")
                    setattr(owner, name, value)
        return found
