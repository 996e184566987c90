"""Public module names that live elsewhere: ``coredispatch.nn`` is ``coredispatch.frontend.nn``.

``import coredispatch.nn.functional as F`` must give the very module that ``cd.nn.functional``
is, and must not cost anything before somebody asks for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["ALIASES", "install", "load"]

#: public name -> where it is
ALIASES: dict[str, str] = {
    "amp": "coredispatch.frontend.amp",
    "autograd": "coredispatch.frontend.autograd",
    "cuda": "coredispatch.frontend.cuda",
    "data": "coredispatch.frontend.data",
    "fft": "coredispatch.frontend.fft",
    "linalg": "coredispatch.frontend.linalg",
    "nn": "coredispatch.frontend.nn",
    "optim": "coredispatch.frontend.optim",
    "random": "coredispatch.frontend.random",
    "serialization": "coredispatch.frontend.serialization",
    "special": "coredispatch.frontend.special",
    "testing": "coredispatch.frontend.testing",
    "utils": "coredispatch.frontend.utils",
    "utils.data": "coredispatch.frontend.data",
}


class _Alias(Loader):
    """Loads a public name by importing the module that it stands for."""

    def __init__(self, real: str) -> None:
        self._real = real
        self._spec: Any = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just given the module the alias's spec; it keeps its own.
        module.__spec__ = self._spec


class _Finder(MetaPathFinder):
    """Answers for ``coredispatch.<alias>`` and everything below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != "coredispatch" or not rest:
            return None
        real = _real_name(rest)
        if real is None:
            return None
        try:
            found = importlib.util.find_spec(real)
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        return ModuleSpec(
            fullname, _Alias(real), is_package=found.submodule_search_locations is not None
        )


def _real_name(name: str) -> str | None:
    """Where ``coredispatch.<name>`` is, by the longest alias that ``name`` begins with."""
    head, tail = name, ""
    while head:
        real = ALIASES.get(head)
        if real is not None:
            return real + tail
        head, _, last = head.rpartition(".")
        tail = f".{last}{tail}"
    return None


def install() -> None:
    """Make the aliases importable."""
    sys.meta_path.append(_Finder())


def load(name: str) -> ModuleType:
    """The module behind the public name ``name``."""
    return importlib.import_module(f"coredispatch.{name}")
