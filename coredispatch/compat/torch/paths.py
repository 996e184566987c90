"""Modules that PyTorch has and coredispatch keeps elsewhere: ``nn.modules.batchnorm`` and the like.

PyTorch's programs import classes from the files they were written in. ``coredispatch.nn.modules``
has other files; a path that PyTorch has and coredispatch has not is a module all the same, which
holds what PyTorch's module holds as far as it is there: the objects of the packages above.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

import coredispatch
from coredispatch._namespaces import NAMESPACES, behind
from coredispatch.compat.torch.names import known_names, missing, record
from coredispatch.compat.torch.places import PLACES
from coredispatch.compat.torch.promised import promised, promised_paths, promised_value
from coredispatch.registry.model.spelling import SPELLING

__all__ = ["OldPath", "PathLoader", "is_provided", "late_attribute", "old_path", "real_module"]


def real_module(path: str) -> ModuleType | None:
    """coredispatch's own module at `path`, None where that is an old path or nothing."""
    if not path:
        return coredispatch
    if not any(path == name or path.startswith(f"{name}.") for name in NAMESPACES):
        return None
    # Asked for by the name below frontend: the import system would ask for old paths in turn.
    name = behind(path)
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return None if found is None else importlib.import_module(name)


def _attribute(module: ModuleType, name: str) -> Any:
    """``module.name`` without the long text where there is none."""
    if name in vars(module):
        return vars(module)[name]
    late = getattr(vars(module).get("__getattr__"), "quiet", None)
    if late is None:
        raise AttributeError(name)
    return late(name)


def _at(place: str, name: str) -> Any:
    home, _, attribute = place.partition(":")
    return getattr(importlib.import_module(home), attribute or name)


def _find(path: str, name: str) -> Any:
    """What PyTorch's module at `path` calls `name`; raises AttributeError where we have it not."""
    place = PLACES.get(path, {}).get(name)
    if place is not None:
        return _at(place, name)
    if f"{path}.{name}" in record():
        if not is_provided(f"{path}.{name}"):
            raise AttributeError(name)
        return importlib.import_module(f"coredispatch.{path}.{name}")
    holder = known_names(path).get(name)
    if holder is None or f"{holder}.{name}".lstrip(".") in record():
        raise AttributeError(name)  # also modules that a module imported, which go in circles
    module = real_module(holder)
    return _find(holder, name) if module is None else _attribute(module, name)


def _present(path: str) -> Iterator[str]:
    for name in {**known_names(path), **PLACES.get(path, {})}:
        below = f"{path}.{name}"
        if below in record():
            if is_provided(below):
                yield name
            continue
        with contextlib.suppress(AttributeError):
            _find(path, name)
            yield name


def is_provided(path: str) -> bool:
    """Whether PyTorch's module at `path` has something here: a module, or names kept elsewhere."""
    return real_module(path) is not None or any(True for _ in _present(path))


class OldPath(ModuleType):
    """A module of PyTorch's whose names are kept elsewhere; see the file."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, f"What PyTorch has in ``torch.{path}``, as far as it is here.")
        self.__dict__["_path"] = path
        self.__dict__["__path__"] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            for find in (_find, promised_value):
                with contextlib.suppress(AttributeError):
                    return find(self.__dict__["_path"], name)
        elif name == "__all__":
            path = self.__dict__["_path"]
            return sorted(n for n in {*_present(path), *promised(path)} if not n.startswith("_"))
        return late_attribute(self, self.__dict__["_path"], name, sys._getframe(1))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_present(self.__dict__["_path"])})


class PathLoader:
    """Gives the module of an old path, or one that exists already."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.spec = getattr(module, "__spec__", None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module that the name stands for."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run: the module is there. The import system has just renamed its spec."""
        if self.spec is not None:
            module.__spec__ = self.spec

    def get_code(self, fullname: str) -> Any:
        """The code of the module's own file for ``python -m``; None without one."""
        loader = getattr(self.spec, "loader", None)
        return loader.get_code(self.spec.name) if hasattr(loader, "get_code") else None  # type: ignore[union-attr]


def old_path(fullname: str) -> ModuleSpec | None:
    """The spec of ``coredispatch.PATH`` where PyTorch has the path and we some of its names."""
    path = fullname.partition(".")[2]
    present = path in record().keys() | PLACES.keys() and any(True for _ in _present(path))
    if not present and path not in promised_paths():
        return None
    spec = ModuleSpec(fullname, PathLoader(OldPath(fullname, path)), is_package=True)  # type: ignore[arg-type]
    return spec


def late_attribute(
    module: ModuleType, path: str, name: str, caller: FrameType | None = None
) -> Any:
    """What module `path` has under `name` without holding it: a submodule. Else it raises.

    AttributeError, or ImportError where ``from module import name`` asks, which says more than
    Python's own.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    place = PLACES.get(path, {}).get(name)
    if place is not None:
        return _at(place, name)
    if path and f"{path}.{name}" not in record():
        with contextlib.suppress(AttributeError):  # PyTorch has it here, we in another file
            return _find(path, name)
    package = "coredispatch" if SPELLING.package == "cd" else SPELLING.package
    below = f"{path}.{name}".lstrip(".")
    if below in record() or below in promised_paths():
        try:
            return importlib.import_module(f"{package}.{path}.{name}".replace("..", "."))
        except ModuleNotFoundError:
            pass
    if "coredispatch.compat.torch.real" in sys.modules and caller is not None:
        from coredispatch.compat.torch.real import real_attribute

        found = real_attribute(path, name, caller)
        if found is not None:
            return found
    imports = caller is not None and _imports(caller)
    if imports and SPELLING.package == "torch":
        with contextlib.suppress(AttributeError):  # importing goes on; using it says what it is
            return promised_value(path or "_C", name)
    text = missing(package, path, name, dir(module))
    if imports:
        raise ImportError(text, name=name)
    raise AttributeError(text, name=name, obj=module)


def _imports(frame: FrameType) -> bool:
    """Whether the frame is at ``from module import name``."""
    import opcode

    return frame.f_code.co_code[frame.f_lasti] == opcode.opmap["IMPORT_FROM"]
