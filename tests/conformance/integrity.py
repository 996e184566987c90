"""The suite and its reference must be what they were: a backend runs in the same process.

A kernel that replaces an assertion of the suite, or the NumPy function it is judged by, would
otherwise certify itself. What was replaced is named, and put back before the next case.
"""

from __future__ import annotations

import importlib
import math
import sys
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
        self._kept: list[tuple[Any, str, Any]] = []
        for module in (*modules, np, np.linalg, math):
            self._keep(module)

    def _keep(self, module: ModuleType) -> None:
        for name, value in list(vars(module).items()):
            if not isinstance(value, _FUNCTIONS):
                continue
            self._kept.append((module, name, value))
            if isinstance(value, type) and value.__module__ == module.__name__:
                for attribute, function in list(vars(value).items()):
                    if isinstance(function, (FunctionType, property, classmethod, staticmethod)):
                        self._kept.append((value, attribute, function))

    def broken(self) -> list[str]:
        """The names of what was replaced since, put back as they were."""
        found = []
        for owner, name, value in self._kept:
            if owner.__dict__.get(name) is not value:
                found.append(f"{owner.__name__}.{name}")
                setattr(owner, name, value)
        return found
