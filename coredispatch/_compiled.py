"""Which form of the hot modules runs: the compiled extension or the Python file.

The modules of ``HOT_MODULES`` are plain typed Python. ``setup.py`` compiles them with mypyc when
mypy and a C compiler are there; Python then prefers the extension to the ``.py`` file beside it.
The extensions share one library and know each other's memory layout, so it is always all of them
or none of them. Two situations ask for the Python files although extensions exist:

* ``COREDISPATCH_INTERPRETED=1`` (tests run both ways; debuggers see every line);
* a checkout in which a ``.py`` file was edited after it was compiled. Running the old code there
  would be the worst kind of surprise, so the sources win until ``make dev`` has compiled again.

``choose_form`` runs before any other module of the package is imported. This file imports the
standard library only: ``setup.py`` and the Makefile read ``HOT_MODULES`` from it.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from typing import Any

__all__ = ["HOT_MODULES", "LIBRARY", "choose_form", "compiled_modules", "form_note"]

# A file listed here and not yet written is left out by setup.py.
HOT_MODULES = (
    "coredispatch/registry/wiring.py",
    "coredispatch/registry/model/kernel_context.py",
    "coredispatch/registry/model/value.py",
    "coredispatch/registry/dispatch/masks.py",
    "coredispatch/registry/model/derivative.py",
    "coredispatch/registry/dispatch/dispatcher.py",
    "coredispatch/registry/dispatch/promotions.py",
    "coredispatch/registry/dispatch/raw_kernels.py",
    "coredispatch/registry/dispatch/inplace_kernels.py",
    "coredispatch/registry/dispatch/boxed_kernels.py",
    "coredispatch/registry/around/arguments.py",
    "coredispatch/registry/around/binding.py",
    "coredispatch/frontend/tensor_base.py",
    "coredispatch/frontend/autograd/node.py",
    "coredispatch/frontend/autograd/accumulate.py",
    "coredispatch/frontend/autograd/recording.py",
    "coredispatch/frontend/autograd/engine.py",
    "coredispatch/frontend/autograd/function_node.py",
)

# The name of the extension that all compiled modules share is LIBRARY + "__mypyc".
LIBRARY = "coredispatch"

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(_PACKAGE)
_note = ""


def _module_name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _extension_of(path: str) -> str | None:
    """The extension file that stands beside the Python file `path`, if there is one."""
    stem = os.path.join(_ROOT, *path.removesuffix(".py").split("/"))
    for suffix in EXTENSION_SUFFIXES:
        if os.path.exists(stem + suffix):
            return stem + suffix
    return None


def _stale_module(extensions: dict[str, str]) -> str | None:
    """The first hot module of this checkout that is newer than its extension, or lacks one."""
    for path in HOT_MODULES:
        source = os.path.join(_ROOT, *path.split("/"))
        if not os.path.exists(source):
            continue
        extension = extensions.get(path)
        if extension is None or os.path.getmtime(source) > os.path.getmtime(extension):
            return path
    return None


class _SourceFinder:
    """Meta path finder that answers for the hot modules, and only with their Python files."""

    def __init__(self) -> None:
        self.files = {
            _module_name(path): os.path.join(_ROOT, *path.split("/")) for path in HOT_MODULES
        }

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        file = self.files.get(fullname)
        if file is None or not os.path.exists(file):
            return None
        # Imported here: only an interpreted run that has extensions beside it pays for it.
        from importlib.util import spec_from_file_location

        return spec_from_file_location(fullname, file)


def choose_form() -> None:
    """Make the hot modules load from their Python files where that is asked for or needed.

    Must run before the first hot module is imported. Costs one ``stat`` per module.
    """
    global _note
    extensions = {path: ext for path in HOT_MODULES if (ext := _extension_of(path))}
    if not extensions:
        _note = "no extensions were built; install with mypy and a C compiler to have them"
        return
    if os.environ.get("COREDISPATCH_INTERPRETED", "0") not in ("", "0"):
        _note = "COREDISPATCH_INTERPRETED is set"
    # Time stamps mean something in a checkout only: an installer writes files in any order.
    elif os.path.exists(os.path.join(_ROOT, "pyproject.toml")):
        stale = _stale_module(extensions)
        if stale is not None:
            _note = f"{stale} is newer than its extension; `make dev` compiles again"
    if _note:
        sys.meta_path.insert(0, _SourceFinder())  # type: ignore[arg-type]


def compiled_modules() -> dict[str, bool | None]:
    """Form of each hot module: True compiled, False interpreted, None not imported (yet).

    Returns a dict from module name (``"coredispatch.registry.model.value"``) to that form.
    """
    forms: dict[str, bool | None] = {}
    for path in HOT_MODULES:
        if not os.path.exists(os.path.join(_ROOT, *path.split("/"))):
            continue
        module = sys.modules.get(_module_name(path))
        file = getattr(module, "__file__", None)
        forms[_module_name(path)] = None if file is None else not file.endswith(".py")
    return forms


def form_note() -> str:
    """Why the Python files run although compiled ones are preferred; empty when compiled."""
    return _note
