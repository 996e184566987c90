"""The vocabulary: one block per operator, grouped by family.

Each module here declares operators; this one puts them into the table, through the same hook as
a stranger's plugin.
"""

from __future__ import annotations

import importlib
import pkgutil

from coredispatch._version import __version__
from coredispatch.registry import Operator, hookimpl, plugins
from coredispatch.registry.table import Registrar

__all__ = ["declared"]


def declared() -> list[Operator]:
    """Every operator declared in this package, in order of module and line."""
    found: dict[int, Operator] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for value in list(vars(module).values()):
            if isinstance(value, Operator) and value.functional is None:
                found[id(value)] = value
    return sorted(found.values(), key=lambda op: (op.file, op.line))


class _Vocabulary:
    """The operators as a plugin."""

    @hookimpl
    def coredispatch_register(self, registrar: Registrar) -> None:
        """Register every declared operator."""
        registrar.op(*declared())


plugins.builtin("ops", _Vocabulary(), __version__)
