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
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

__all__ = ["NAMESPACES", "OldPaths", "behind", "publish"]

#: public name, without the package in front -> the module it stands for
NAMESPACES: dict[str, str] = {
    "__config__": "coredispatch.frontend.configuration",
    "_C": "coredispatch.frontend.private.c",
    "_custom_ops": "coredispatch.frontend.private.custom_ops",
    "_dynamo": "coredispatch.frontend.private.dynamo",
    "_jit_internal": "coredispatch.frontend.private.jit_internal",
    "_tensor": "coredispatch.frontend.private.tensor",
    "_utils": "coredispatch.frontend.private.utils",
    "accelerator": "coredispatch.frontend.accelerator",
    "amp": "coredispatch.frontend.amp",
    "ao": "coredispatch.frontend.ao",
    "array_api": "coredispatch.frontend.array_api",
    "autograd": "coredispatch.frontend.autograd",
    "compiler": "coredispatch.frontend.compiler",
    "cpu": "coredispatch.frontend.cpu",
    "backends.cpu": "coredispatch.frontend.backends.cpu",
    "backends.cuda": "coredispatch.frontend.backends.cuda",
    "backends.cudnn": "coredispatch.frontend.backends.cudnn",
    "backends.cusparselt": "coredispatch.frontend.backends.cusparselt",
    "backends.kleidiai": "coredispatch.frontend.backends.kleidiai",
    "backends.mha": "coredispatch.frontend.backends.mha",
    "backends.miopen": "coredispatch.frontend.backends.miopen",
    "backends.mkl": "coredispatch.frontend.backends.mkl",
    "backends.mkldnn": "coredispatch.frontend.backends.mkldnn",
    "backends.mps": "coredispatch.frontend.backends.mps",
    "backends.nnpack": "coredispatch.frontend.backends.nnpack",
    "backends.openmp": "coredispatch.frontend.backends.openmp",
    "backends.opt_einsum": "coredispatch.frontend.backends.opt_einsum",
    "backends.quantized": "coredispatch.frontend.backends.quantized",
    "backends.xnnpack": "coredispatch.frontend.backends.xnnpack",
    "cuda": "coredispatch.frontend.cuda",
    "data": "coredispatch.frontend.data",
    "distributed": "coredispatch.frontend.distributed",
    "distributions": "coredispatch.frontend.distributions",
    "export": "coredispatch.frontend.export",
    "fft": "coredispatch.frontend.fft",
    "func": "coredispatch.frontend.func",
    "futures": "coredispatch.frontend.futures",
    "fx": "coredispatch.frontend.fx",
    "jit": "coredispatch.frontend.jit",
    "library": "coredispatch.frontend.library",
    "hub": "coredispatch.frontend.hub",
    "linalg": "coredispatch.frontend.linalg",
    "masked": "coredispatch.frontend.masked",
    "mps": "coredispatch.frontend.mps",
    "multiprocessing": "coredispatch.frontend.multiprocessing",
    "nested": "coredispatch.frontend.nested",
    "nn": "coredispatch.frontend.nn",
    "onnx": "coredispatch.frontend.onnx",
    "optim": "coredispatch.frontend.optim",
    "overrides": "coredispatch.frontend.overrides",
    "package": "coredispatch.frontend.package",
    "profiler": "coredispatch.frontend.profiler",
    "quantization": "coredispatch.frontend.ao.quantization",
    "quasirandom": "coredispatch.frontend.quasirandom",
    "random": "coredispatch.frontend.random",
    "return_types": "coredispatch.frontend.return_types",
    "serialization": "coredispatch.frontend.serialization",
    "signal": "coredispatch.frontend.signal",
    "sparse": "coredispatch.frontend.sparse",
    "special": "coredispatch.frontend.special",
    "storage": "coredispatch.frontend.storage",
    "testing": "coredispatch.frontend.testing",
    "types": "coredispatch.frontend.types",
    "utils": "coredispatch.frontend.utils",
    "utils.data": "coredispatch.frontend.data",
    "version": "coredispatch.frontend.version",
    "xpu": "coredispatch.frontend.xpu",
}


def publish(public: str) -> None:
    """Put the module that the public name stands for, and all below it, in ``sys.modules``.

    Called by the file of the public name while that file is imported; the import system then hands
    out what is in ``sys.modules``. The modules below come first: another
    thread that sees the package under its public name also sees them.
    """
    package, _, name = public.partition(".")
    real = importlib.import_module(behind(name))
    names = {f"{public}.{below}": module for below, module in _modules_below(real)}
    for namespace, stands_for in NAMESPACES.items():
        nested = f"{package}.{namespace}"
        if nested.startswith(public + "."):
            module = importlib.import_module(stands_for)
            names[nested] = module
            names |= {f"{nested}.{below}": found for below, found in _modules_below(module)}
    names[public] = real
    for name, module in names.items():
        _answer_late(module, name.partition(".")[2])
    sys.modules.update(names)


def behind(name: str) -> str:
    """The module that the public ``name`` stands for, by the longest namespace above it."""
    head, tail = name, ""
    while head not in NAMESPACES:
        head, _, last = head.rpartition(".")
        tail = f".{last}{tail}"
    return NAMESPACES[head] + tail


def _modules_below(package: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """``(name relative to the package, module)`` of all modules below, imported."""
    for info in pkgutil.iter_modules(getattr(package, "__path__", ())):
        # The spec has the name that the module was found by, whatever it says at present.
        name = package.__spec__.name if package.__spec__ else package.__name__
        if info.name == "__main__":  # a program, which `python -m` runs: not to be imported
            continue
        module = importlib.import_module(f"{name}.{info.name}")
        yield info.name, module
        for below, found in _modules_below(module):
            yield f"{info.name}.{below}", found


def _answer_late(module: ModuleType, path: str) -> None:
    """Let a public module find what PyTorch has below it, and name what is missing."""
    own = module.__dict__.get("__getattr__")
    if getattr(own, "late", False):
        return

    def __getattr__(name: str) -> Any:
        if own is not None:
            try:
                return own(name)
            except AttributeError:
                if name.startswith("__"):
                    raise
        from coredispatch.compat.torch.paths import late_attribute

        return late_attribute(module, path, name, sys._getframe(1))

    __getattr__.late = True  # type: ignore[attr-defined]
    __getattr__.quiet = own  # type: ignore[attr-defined]
    module.__dict__["__getattr__"] = __getattr__


class OldPaths:
    """Last of ``sys.meta_path``: modules that PyTorch has and coredispatch keeps elsewhere."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> Any:
        """The spec of such a module, which is made on first need; None for all others."""
        head, _, tail = fullname.partition(".")
        if head != "coredispatch" or tail.partition(".")[0] in _INSIDE:
            return None
        from coredispatch.compat.torch.paths import old_path

        return old_path(fullname)


_INSIDE = {"backends", "compat", "conformance", "frontend", "ops", "registry"}
