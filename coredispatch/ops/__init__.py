"""The operator library: one definition per operator, in a folder per family.

Each module of a family declares operators; this one puts them into the table, through the same hook
as a third party's plugin. ``support`` holds what the definitions share.
"""

from __future__ import annotations

import importlib
import pkgutil

from coredispatch._version import __version__
from coredispatch.registry import Operator, hookimpl, plugins
from coredispatch.registry.dispatch.registrar import Registrar

__all__ = ["declared"]


def declared() -> list[Operator]:
    """Every operator declared in this package, in order of file and line."""
    found: dict[int, Operator] = {}
    modules = pkgutil.walk_packages(__path__, f"{__name__}.")
    for name in sorted(info.name for info in modules if not info.ispkg):
        module = importlib.import_module(name)
        for value in list(vars(module).values()):
            if isinstance(value, Operator) and value.derived_from is None:
                found[id(value)] = value
    return sorted(found.values(), key=lambda op: (op.file, op.line))


class _OperatorLibrary:
    """The operators as a plugin."""

    @hookimpl
    def coredispatch_register(self, registrar: Registrar) -> None:
        """Register every declared operator."""
        registrar.op(*declared())


plugins.builtin("ops", _OperatorLibrary(), __version__)
