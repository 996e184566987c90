"""PyTorch itself, also while ``import torch`` means coredispatch.

Two libraries then want one name. ``sys.modules`` has coredispatch under it; PyTorch's own modules
are kept here, and their import statements, recognised by the file they stand in, are answered from
here.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import os
import sys
from types import FrameType, ModuleType
from typing import Any

from coredispatch.compat.torch import switch
from coredispatch.compat.torch.switch import REAL

__all__ = ["collect", "real_attribute", "real_torch"]

_import = builtins.__import__


def real_torch() -> ModuleType:
    """The installed PyTorch, whatever ``import torch`` means at present.

    While the shim is on, what looks a name up in ``sys.modules`` finds coredispatch. PyTorch's
    ``save`` and ``load`` are run with the shim paused; pickle its objects with anything else inside
    ``with coredispatch.compat.torch.paused()``. Raises ModuleNotFoundError where PyTorch is not
    installed.
    """
    if not switch.is_installed():
        return importlib.import_module("torch")
    if "torch" not in REAL:
        with switch.paused():
            _warm_up(importlib.import_module("torch"))
        root = os.path.dirname(str(REAL["torch"].__file__)) + os.sep
        builtins.__import__ = _ImportStatement(root)
        for module in (REAL["torch"], REAL["torch.serialization"]):
            for name in ("save", "load"):
                setattr(module, name, _paused(getattr(module, name)))
    return REAL["torch"]


def _paused(function: Any) -> Any:
    """A function of PyTorch that pickles, and so looks its classes up in ``sys.modules``."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with switch.paused():
            return function(*args, **kwargs)

    return call


def _warm_up(torch: Any) -> None:
    """Let PyTorch's C++ code find the Python classes it looks for on first use, and keeps."""
    x = torch.ones(2, requires_grad=True)
    repr((x * 1.5).sum(0) / 2)
    (x[0] * 2.0).backward()
    x.detach().reshape(1, -1).expand(2, 2).numpy().tolist()
    torch.tensor([1, 2])[torch.tensor([0])] % 2
    torch.nn.Parameter(x.detach()).data.half().type(torch.float32)
    double = type("Double", (torch.autograd.Function,), {})
    double.forward = staticmethod(lambda ctx, x: x * 2)
    double.backward = staticmethod(lambda ctx, grad: grad * 2)
    double.apply(x).sum().backward()
    torch.optim.SGD([x], lr=0.0).step()
    torch.func.vmap(torch.func.grad(lambda x: x * x))(x.detach())
    torch.nn.functional.softmax(x, dim=0, dtype=torch.float64).clamp(0.0, 1).to("cpu", torch.half)


def real_attribute(path: str, name: str, caller: FrameType) -> Any:
    """What PyTorch has there, where it is PyTorch's own code that asks; else None.

    Its C++ code asks the modules that it finds in ``sys.modules``, which are ours.
    """
    module = REAL.get(f"torch.{path}" if path else "torch")
    root = os.path.dirname(str(getattr(REAL.get("torch"), "__file__", ""))) + os.sep
    if module is None or not caller.f_code.co_filename.startswith(root):
        return None
    return getattr(module, name, None)


def collect() -> None:
    """Take PyTorch's modules out of ``sys.modules``, but those that coredispatch has nothing for.

    PyTorch's C++ code looks modules of its inside up there, such as ``torch.jit._state``.
    """
    for name in [n for n in switch.imported() if n == "torch" or n.startswith("torch.")]:
        REAL[name] = sys.modules[name]
        if name == "torch" or switch.serves(name):
            del sys.modules[name]


class _ImportStatement:
    """``__import__`` that answers PyTorch's own files with PyTorch."""

    def __init__(self, root: str) -> None:
        self.root = root

    def __call__(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if (level or name == "torch" or name.startswith("torch.")) and globals is not None:
            file = globals.get("__file__")
            if isinstance(file, str) and file.startswith(self.root) and switch.is_installed():
                return self._answer(name, globals, fromlist or (), level)
        return _import(name, globals, locals, fromlist, level)

    def _answer(self, name: str, globals: Any, fromlist: Any, level: int) -> Any:
        if level:
            package = globals.get("__package__") or ""
            name = importlib.util.resolve_name("." * level + name, package)
        module = REAL.get(name)
        wanted = [n for n in fromlist if n != "*"]
        if module is None or not all(hasattr(module, n) for n in wanted):
            with switch.paused():
                _import(name, globals, None, fromlist, 0)
            module = REAL.get(name) or sys.modules[name]
        if not fromlist and name not in sys.modules:  # C++ code takes it from there
            importlib.import_module(name)
        return module if fromlist else REAL.get(name.partition(".")[0], module)
