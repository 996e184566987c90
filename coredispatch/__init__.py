"""coredispatch: one keyed dispatch table, and everything that gives an operator a meaning in it.

``import coredispatch as cd``. Public names only; see ``docs/`` for the map of the code.
"""

from __future__ import annotations

import gc as _gc
import importlib as _importlib
from typing import Any

from coredispatch._compiled import choose_form as _choose_form

_choose_form()

# Declaring the operators makes some 50,000 objects that stay. Looking for garbage among them on the
# way took a quarter of the time of the import (measured).
_collects = _gc.isenabled()
_gc.disable()
try:
    from coredispatch import frontend as _frontend  # noqa: F401
finally:
    if _collects:
        _gc.enable()

from coredispatch._namespaces import NAMESPACES as _NAMESPACES  # noqa: E402
from coredispatch._version import __version__  # noqa: E402
from coredispatch.frontend import operators as _operators  # noqa: E402
from coredispatch.frontend import public as _public  # noqa: E402
from coredispatch.frontend.public import *  # noqa: E402, F403

globals().update(_operators.operators())

__all__ = ["__version__", *_public.__all__, *_operators.operators()]


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return _importlib.import_module(f"coredispatch.{name}")
    late = _operators.late_name(name)
    if late is not None:
        return late
    raise AttributeError(f"module 'coredispatch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for name in _NAMESPACES if "." not in name)})
