"""Modules whose attributes are settings: checked when they are written.

``cd.backends.cudnn.benchmark = True`` writes an attribute of a module. A module that calls
:func:`check_settings` refuses a value of another type and a name it does not have, and may act.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["check_settings"]


class _SettingsModule(ModuleType):
    """A module that looks at what is written to it."""

    def __setattr__(self, name: str, value: Any) -> None:
        types = self.__dict__["_TYPES"]
        if name in types:
            if not isinstance(value, types[name]) or (
                isinstance(value, bool) and bool not in types[name]
            ):
                expected = " or ".join(t.__name__ for t in types[name])
                raise RuntimeError(
                    f"{self.__name__}.{name} expects {expected}, but got {type(value).__name__}"
                )
            act = self.__dict__["_ACTS"].get(name)
            if act is not None:
                value = act(value)
        super().__setattr__(name, value)


def check_settings(
    module: str,
    types: dict[str, tuple[type, ...]],
    acts: dict[str, Callable[[Any], Any]] | None = None,
) -> None:
    """Let the module of that name check the types of its settings; ``acts`` may refuse or act."""
    found = sys.modules[module]
    found.__dict__["_TYPES"] = types
    found.__dict__["_ACTS"] = acts or {}
    found.__class__ = _SettingsModule
