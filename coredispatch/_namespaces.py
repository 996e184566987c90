"""Public names of modules: ``coredispatch.nn`` is ``coredispatch.frontend.nn``, the same object.

Every public name has a small file (``coredispatch/nn/functional.py``), written by ``python -m
coredispatch.stubs``, so that type checkers and editors find it. When the package behind a public
name is first imported, ``publish`` enters the modules themselves under their public names. A module
is therefore never run a second time under its other name, in whatever order and by whatever
spelling the names are imported.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType

__all__ = ["NAMESPACES", "publish"]

#: public name, without the package in front -> the module it stands for
NAMESPACES: dict[str, str] = {
    "amp": "coredispatch.frontend.amp",
    "autograd": "coredispatch.frontend.autograd",
    "cuda": "coredispatch.frontend.cuda",
    "data": "coredispatch.frontend.data",
    "fft": "coredispatch.frontend.fft",
    "linalg": "coredispatch.frontend.linalg",
    "nn": "coredispatch.frontend.nn",
    "optim": "coredispatch.frontend.optim",
    "random": "coredispatch.frontend.random",
    "return_types": "coredispatch.frontend.return_types",
    "serialization": "coredispatch.frontend.serialization",
    "signal": "coredispatch.frontend.signal",
    "special": "coredispatch.frontend.special",
    "testing": "coredispatch.frontend.testing",
    "utils": "coredispatch.frontend.utils",
    "utils.data": "coredispatch.frontend.data",
}


def publish(public: str) -> None:
    """Put the module that the public name stands for, and all below it, in ``sys.modules``.

    Called by the file of the public name while that file is imported; the import system then hands
    out what is in ``sys.modules``. The modules below come first: whoever sees the package
    under its public name, in another thread, also sees them.
    """
    package, _, name = public.partition(".")
    real = importlib.import_module(_behind(name))
    names = {f"{public}.{below}": module for below, module in _modules_below(real)}
    for namespace, stands_for in NAMESPACES.items():
        nested = f"{package}.{namespace}"
        if nested.startswith(public + "."):
            module = importlib.import_module(stands_for)
            names[nested] = module
            names |= {f"{nested}.{below}": found for below, found in _modules_below(module)}
    sys.modules.update(names)
    sys.modules[public] = real


def _behind(name: str) -> str:
    """The module that the public ``name`` stands for, by the longest namespace above it."""
    head, tail = name, ""
    while head not in NAMESPACES:
        head, _, last = head.rpartition(".")
        tail = f".{last}{tail}"
    return NAMESPACES[head] + tail


def _modules_below(package: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """``(name relative to the package, module)`` of all modules below, imported."""
    for info in pkgutil.iter_modules(getattr(package, "__path__", ())):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        yield info.name, module
        for below, found in _modules_below(module):
            yield f"{info.name}.{below}", found
