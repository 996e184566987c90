"""Top-level names that programs touch and that are no operators."""

from __future__ import annotations

import math
import sys
import types
import warnings
from typing import Any, NoReturn

from coredispatch._warnings import WARN
from coredispatch.frontend.operators import LibraryError
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.sizes import Symbol

__all__ = [
    "SymBool",
    "SymFloat",
    "SymInt",
    "is_warn_always_enabled",
    "set_flush_denormal",
    "set_warn_always",
    "sym_float",
    "sym_int",
    "sym_ite",
    "sym_max",
    "sym_min",
    "sym_not",
    "sym_sqrt",
    "sym_sum",
    "typename",
]


class _Symbol:
    """A number that is not known yet. None are handed to programs: sizes are Python's numbers."""

    def __init__(self, node: Any) -> None:
        self.node = node


class SymInt(_Symbol):
    """A size that is not known yet; ``isinstance(n, SymInt)`` is False for every size."""


class SymFloat(_Symbol):
    """A float that is not known yet; there are none."""


class SymBool(_Symbol):
    """A truth value that is not known yet; there are none."""


def _open(value: Any) -> bool:
    return isinstance(value, Symbol)


def sym_int(a: Any) -> int:
    """``int(a)``, rounded towards zero; that of an open size stays open."""
    return math.trunc(a) if _open(a) else int(a)


def sym_float(a: Any) -> float:
    """``float(a)``; that of an open size stays open."""
    return a * 1.0 if _open(a) else float(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger one; a float where one of them is."""
    return _extreme("max", a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller one; a float where one of them is."""
    return _extreme("min", a, b)


def _extreme(kind: str, a: Any, b: Any) -> Any:
    if _open(a) or _open(b):
        from coredispatch.graph.symbols import extreme

        chosen = extreme(kind, a, b)
    else:
        chosen = max(a, b) if kind == "max" else min(a, b)
    return sym_float(chosen) if isinstance(a, float) or isinstance(b, float) else chosen


def sym_not(a: Any) -> bool:
    """``not a``."""
    return not a


def sym_sqrt(a: Any) -> float:
    """The square root of a number; that of an open size stays open."""
    return a**0.5 if _open(a) else math.sqrt(a)


def sym_sum(*args: Any) -> Any:
    """The sum of numbers, given one by one or as one list."""
    return sum(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """``t`` if ``b``, else ``f``."""
    return t if b else f


def set_flush_denormal(mode: bool) -> bool:
    """Nothing: subnormal numbers are always computed. Returns False, as where the CPU cannot."""
    if not isinstance(mode, bool):
        raise TypeError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return False


def _assert(condition: Any, message: Any) -> None:
    """``assert condition, message``, as a call. Raises AssertionError."""
    assert condition, message


def typename(obj: Any, /) -> str:
    """The name of an object's type: ``"torch.FloatTensor"`` for a tensor."""
    if isinstance(obj, Tensor):
        kind: str = obj.type()
        return kind
    module = getattr(obj, "__module__", "") or ""
    name = getattr(obj, "__qualname__", None)
    if name is None or isinstance(obj, types.ModuleType):
        module, name = type(obj).__module__, type(obj).__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"


def set_warn_always(b: bool, /) -> None:
    """Whether warnings that are given once are given each time: Python's filters decide which.

    Raises TypeError for anything but a bool.
    """
    if not isinstance(b, bool):
        raise TypeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    WARN.always = b
    if b:
        warnings.simplefilter("always")


def is_warn_always_enabled() -> bool:
    """What :func:`set_warn_always` said last."""
    return WARN.always


class _Classes(types.ModuleType):
    """``classes.NAMESPACE.NAME``: compiled classes, of which there are none."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"Tried to instantiate a class of {name!r}: there are no compiled classes\n"
            "  fix: use a plugin, or a class of Python"
        )

    def load_library(self, path: Any) -> NoReturn:
        """Raises: libraries of PyTorch's C++ operators cannot be loaded."""
        raise LibraryError(
            f"{path}: a library of PyTorch's C++ operators cannot be loaded\n"
            "  fix: register the operators in Python with library.custom_op, or write a plugin"
        )


classes = _Classes(f"{__name__}.classes")
sys.modules.setdefault(classes.__name__, classes)
