"""Passes: functions from a graph to a graph. Each module is imported when it is asked for."""

import importlib as _importlib
import pkgutil as _pkgutil
from types import ModuleType as _Module


def __getattr__(name: str) -> _Module:
    if name not in {module.name for module in _pkgutil.iter_modules(__path__)}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _importlib.import_module(f"{__name__}.{name}")
