"""``coredispatch.utils.deterministic``: is new memory filled under deterministic algorithms?

``fill_uninitialized_memory`` is an attribute to be set, True from the start.
"""

from __future__ import annotations

import sys
from types import ModuleType

from coredispatch.frontend.determinism import set_fill_uninitialized_memory
from coredispatch.registry.model.determinism import DETERMINISM

__all__ = ["fill_uninitialized_memory"]

fill_uninitialized_memory: bool


class _Module(ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether ``empty`` and its relatives fill what they make."""
        return DETERMINISM.fill

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, fill: bool) -> None:
        if not isinstance(fill, bool):
            raise TypeError(f"fill_uninitialized_memory must be a bool, not {type(fill).__name__}")
        set_fill_uninitialized_memory(fill)


sys.modules[__name__].__class__ = _Module
