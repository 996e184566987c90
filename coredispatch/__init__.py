"""coredispatch: one keyed dispatch table, and everything that gives an operator a meaning in it.

``import coredispatch as cd``. Public names only; see ``docs/`` for the map of the code.
"""

from __future__ import annotations

import gc as _gc
import importlib as _importlib
import sys as _sys
from typing import Any

from coredispatch._compiled import choose_form as _choose_form

_choose_form()

# Declaring the operators makes some 50,000 objects that stay. Looking for garbage among them on the
# way took a quarter of the time of the import (measured). They are then passed over to the oldest
# generation, so that the first collection of a program does not go through them all either.
_collects = _gc.isenabled()
_gc.disable()
try:
    from coredispatch import frontend as _frontend  # noqa: F401
finally:
    if not _gc.get_freeze_count():  # what a program has frozen stays so
        _gc.freeze()
        _gc.unfreeze()
    if _collects:
        _gc.enable()

from coredispatch._late_names import LATE_NAMES as _LATE_NAMES  # noqa: E402
from coredispatch._namespaces import NAMESPACES as _NAMESPACES  # noqa: E402
from coredispatch._namespaces import OldPaths as _OldPaths  # noqa: E402
from coredispatch._version import __version__  # noqa: E402
from coredispatch.frontend import operators as _operators  # noqa: E402
from coredispatch.frontend import public as _public  # noqa: E402
from coredispatch.frontend.public import *  # noqa: E402, F403

globals().update(_operators.operators())

__all__ = ["__version__", *_public.__all__, *_operators.operators()]


_sys.meta_path.append(_OldPaths())  # type: ignore[arg-type]


def _late(name: str) -> Any:
    if name in _NAMESPACES or name in ("compat", "graph"):
        return _importlib.import_module(f"coredispatch.{name}")
    if name in _LATE_NAMES:
        module = _importlib.import_module(f"coredispatch.{_LATE_NAMES[name]}")
        return getattr(module, name)
    late = _operators.late_name(name)
    if late is None and not name.startswith("_"):
        from coredispatch.frontend.device_modules import module_of_plugin

        late = module_of_plugin(name)
    if late is None:
        raise AttributeError(f"module 'coredispatch' has no attribute {name!r}")
    return late


def __getattr__(name: str) -> Any:
    try:
        return _late(name)
    except AttributeError:
        if name.startswith("__"):
            raise
    from coredispatch.compat.torch.paths import late_attribute

    return late_attribute(_sys.modules[__name__], "", name, _sys._getframe(1))


__getattr__.quiet = _late  # type: ignore[attr-defined]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE_NAMES, *(name for name in _NAMESPACES if "." not in name)})
