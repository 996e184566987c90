"""Switches the names on and off: ``torch`` and all below it in ``sys.modules``.

A module below ``torch`` *is* coredispatch's: ``torch.nn is coredispatch.nn``, so that settings,
patches and ``isinstance`` see one thing. ``torch`` itself is a module of its own, which has the
version and the name; it re-exports what coredispatch has. While the names are on, modules and
classes that PyTorch has as well say that they are ``torch``'s.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import coredispatch
from coredispatch._namespaces import NAMESPACES
from coredispatch.compat.torch.names import defined_in, known_names, missing, record
from coredispatch.compat.torch.paths import PathLoader, is_provided, late_attribute
from coredispatch.compat.torch.promised import promised_paths
from coredispatch.compat.torch.version import VERSION
from coredispatch.frontend import return_types
from coredispatch.registry.model.errors import CoreDispatchError
from coredispatch.registry.model.spelling import SPELLING

__all__ = ["install", "is_installed", "paused", "uninstall"]

#: a folder with a package ``torch`` that calls :func:`install`: processes that multiprocessing
#: spawns get this one's ``sys.path``, and so the names
BOOTSTRAP = str(Path(__file__).parents[1] / "path")

_LOCK = threading.RLock()


class TorchModule(ModuleType):
    """``torch`` while the names are installed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in NAMESPACES:
            raise AttributeError(f"module 'torch' has no attribute {name!r}")
        if name in NAMESPACES or name in record():
            with contextlib.suppress(ModuleNotFoundError):
                return importlib.import_module(f"torch.{name}")
        try:
            value = getattr(coredispatch, name)
        except AttributeError:
            return late_attribute(self, "", name, sys._getframe(1))
        if isinstance(value, type) and value.__name__ == name:
            _TEXTS.cls(value, "", name)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(coredispatch)})


class TorchLoader:
    """Fills :class:`TorchModule`; runs again where a program reloads ``torch``."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module, still empty."""
        return TorchModule("torch", coredispatch.__doc__)

    def exec_module(self, module: ModuleType) -> None:
        """Re-export what coredispatch has."""
        own = {"__name__", "__spec__", "__loader__", "__package__", "__path__", "__getattr__"}
        shared = {k: v for k, v in vars(coredispatch).items() if k not in own | {"__dir__"}}
        # A public namespace is asked for by its name below torch, which gives it that name.
        for name in [n for n in shared if n in NAMESPACES]:
            del shared[name]
        module.__dict__.update(shared)
        module.__version__ = VERSION  # type: ignore[attr-defined]
        module.torch = module  # type: ignore[attr-defined]  # as PyTorch's: torch.torch.Tensor


class TorchFinder:
    """Answers for ``torch`` and all below it, before any installed PyTorch is looked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        """The spec of a name below ``torch``; ModuleNotFoundError for one that is not here."""
        if fullname == "torch":
            spec = ModuleSpec("torch", TorchLoader(), is_package=True)  # type: ignore[arg-type]
            spec.origin = coredispatch.__file__
            spec.has_location = True
            return spec
        if fullname.partition(".")[0] == "functorch":
            return _functorch(fullname)
        if not fullname.startswith("torch."):
            return None
        module = _stands_for(fullname)
        return ModuleSpec(fullname, _NameLoader(module), is_package=hasattr(module, "__path__"))  # type: ignore[arg-type]

    def find_distributions(self, context: Any) -> Iterator[importlib.metadata.Distribution]:
        """What ``importlib.metadata.version("torch")`` reads."""
        if (context.name or "torch").lower() == "torch":
            yield _Distribution()


class _NameLoader(PathLoader):
    """Gives coredispatch's module under its name below ``torch``."""

    def exec_module(self, module: ModuleType) -> None:
        """Enter what lies below as well, and let it say so."""
        name = module.__spec__.name  # type: ignore[union-attr]
        super().exec_module(module)
        _respell_below(name.partition(".")[2])


class _Distribution(importlib.metadata.Distribution):
    """The metadata of a distribution ``torch`` of the version that the shim has."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n"
        return None

    def locate_file(self, path: Any) -> Any:
        return Path(__file__).parent / path


def _stands_for(fullname: str) -> ModuleType:
    """coredispatch's module for ``torch.PATH``."""
    path = fullname.partition(".")[2]
    if is_provided(path) or path in promised_paths():
        return importlib.import_module(f"coredispatch.{path}")
    above, _, last = path.rpartition(".")
    siblings = [p.rpartition(".")[2] for p in record() if p.rpartition(".")[0] == above and p]
    text = missing("torch", above, last, siblings).replace("has no attribute", "has no module")
    raise ModuleNotFoundError(text, name=fullname)


def _functorch(fullname: str) -> ModuleSpec | None:
    """The spec of the package that PyTorch brings beside ``torch``."""
    modules = importlib.import_module("coredispatch.frontend.private.functorch").MODULES
    if fullname not in modules:
        raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
    return ModuleSpec(fullname, PathLoader(modules[fullname]), is_package=True)  # type: ignore[arg-type]


def serves(fullname: str) -> bool:
    """Whether ``import fullname`` gives a module of coredispatch."""
    path = fullname.partition(".")[2]
    return is_provided(path) or path in promised_paths()


# -- texts ---------------------------------------------------------------------------------


class _Named(ModuleType):
    """A module that shows the name it has at present; Python shows the one it was found by."""

    def __repr__(self) -> str:
        return f"<module {self.__name__!r} from {self.__file__!r}>"


class _Texts:
    """The names that modules and classes had before, to be given back."""

    def __init__(self) -> None:
        self.modules: dict[ModuleType, str] = {}

    def module(self, module: ModuleType, path: str) -> None:
        """Let ``module.__name__`` and its classes' ``__module__`` say ``torch``."""
        if module in self.modules or isinstance(module, TorchModule):
            return
        before = self.modules[module] = module.__name__
        module.__name__ = f"torch.{path}"
        if type(module) is ModuleType and getattr(module, "__file__", None):
            module.__class__ = _Named
        spec = getattr(module, "__spec__", None)
        home = before if spec is None else spec.name
        owned = {name for name, holder in known_names(path).items() if holder is None}
        for name, value in list(vars(module).items()):
            if not isinstance(value, type):
                continue
            if value.__module__ in (home, before) or (name in owned and value.__name__ == name):
                self.cls(value, path, value.__name__)

    def cls(self, cls: type, path: str, name: str) -> None:
        """Let `cls`, public as `name` in the module at `path`, say where PyTorch has it."""
        if cls in SPELLING.renamed or not cls.__module__.startswith("coredispatch"):
            return
        where = defined_in(path, name)
        try:
            before = (cls.__module__, cls.__name__, cls.__qualname__)
            _resolve_annotations(cls)
            cls.__module__ = f"torch.{path if where is None else where}".rstrip(".")
            if cls.__name__ != name:
                cls.__name__ = cls.__qualname__ = name
        except TypeError:  # a compiled class
            return
        SPELLING.renamed[cls] = before

    def restore(self) -> None:
        for module, name in self.modules.items():
            module.__name__ = name
            if type(module) is _Named:
                module.__class__ = ModuleType
        for cls, (module_name, name, qualname) in SPELLING.renamed.items():
            cls.__module__, cls.__name__, cls.__qualname__ = module_name, name, qualname
        self.modules.clear()
        SPELLING.renamed.clear()


def _resolve_annotations(cls: type) -> None:
    """Put types in the place of the texts of annotations, which name what only their file imports.

    A caller that asks for them (``typing.get_type_hints``) looks for the names in the module that
    the class says it is from.
    """
    texts = cls.__dict__.get("__annotations__", {})
    names = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    for name, text in texts.items():
        if isinstance(text, str):
            try:
                texts[name] = eval(text, names, vars(cls))
            except NameError:  # imported for type checkers alone
                texts[name] = Any


_TEXTS = _Texts()
#: classes whose own name is not the public one
_RENAMED = ("dtype", "device", "layout", "memory_format")


def _respell_top() -> None:
    for name in (*known_names(""), "Generator"):
        value = coredispatch.__dict__.get(name)
        if isinstance(value, type) and (value.__name__ == name or name in _RENAMED):
            _TEXTS.cls(value, "", name)
    for name in dir(return_types):
        _TEXTS.cls(getattr(return_types, name), "return_types", name)


def _is_package(path: str) -> bool:
    """Whether PyTorch has modules below `path`."""
    return any(p.startswith(f"{path}.") for p in (*record(), *promised_paths()))


def imported() -> list[str]:
    """The names in ``sys.modules``; another thread may import while they are gone through."""
    return list(sys.modules)


def _respell_below(path: str) -> None:
    """Enter what was imported below a public name under ``torch``, and let it say so."""
    prefix = f"coredispatch.{path}"
    for name in imported():
        if name != prefix and not name.startswith(prefix + "."):
            continue
        module = sys.modules[name]
        below = name.partition(".")[2]
        sys.modules.setdefault(f"torch.{below}", module)
        if not hasattr(module, "__path__") and _is_package(below):
            module.__path__ = []  # PyTorch has a package there, whose modules are old paths here
        _TEXTS.module(module, below)


# -- on and off ----------------------------------------------------------------------------

_finder = TorchFinder()
_own: dict[str, ModuleType] = {}


#: PyTorch's modules, while ``sys.modules`` has coredispatch under their names
REAL: dict[str, ModuleType] = {}


def _names_in_use() -> list[str]:
    """The names in ``sys.modules``, ``torch`` and below, that do not stand for PyTorch."""
    names = [n for n in imported() if n.partition(".")[0] in ("torch", "functorch")]
    return [n for n in names if sys.modules[n] is not REAL.get(n)]


def is_installed() -> bool:
    """Whether ``import torch`` means coredispatch at present."""
    return _finder in sys.meta_path


def install() -> None:
    """Let ``import torch``, and of anything below it, mean coredispatch in this process.

    Raises RuntimeError where PyTorch itself was imported before: who did so holds its objects.
    Doing it twice does nothing.
    """
    with _LOCK:
        if is_installed():
            return
        imported = sys.modules.get("torch")
        bootstrap = getattr(imported, "__path__", None) and BOOTSTRAP in str(imported.__path__)  # type: ignore[union-attr]
        if imported is not None and not bootstrap and not isinstance(imported, TorchModule):
            raise RuntimeError(
                "compat.torch.install(): PyTorch was imported before, and who did so holds its "
                "objects\n  fix: install first, and get PyTorch with "
                "coredispatch.compat.real_torch()"
            )
        for name in _names_in_use():
            del sys.modules[name]
        sys.modules.update(_own)
        SPELLING.package = "torch"
        CoreDispatchError.spelled = SPELLING.respelled
        sys.meta_path.insert(0, _finder)  # type: ignore[arg-type]
        if BOOTSTRAP not in sys.path:
            sys.path.insert(0, BOOTSTRAP)
        _respell_top()
        for name, module in _own.items():
            if name != "torch":
                _TEXTS.module(module, name.partition(".")[2])
        importlib.import_module("torch")


def uninstall() -> None:
    """Give the name ``torch`` back. Modules that imported it keep what they have."""
    with _LOCK:
        if not is_installed():
            return
        _own.update({n: sys.modules[n] for n in _names_in_use()})
        for name in _own:
            sys.modules.pop(name, None)
        sys.meta_path.remove(_finder)  # type: ignore[arg-type]
        with contextlib.suppress(ValueError):
            sys.path.remove(BOOTSTRAP)
        importlib.invalidate_caches()
        SPELLING.package = "cd"
        CoreDispatchError.spelled = str
        _TEXTS.restore()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """A block in which ``torch`` is PyTorch again, for what looks in ``sys.modules``: pickling."""
    from coredispatch.compat.torch.real import collect

    with _LOCK:
        was = is_installed()
        uninstall()
        sys.modules.update(REAL)
        try:
            yield
        finally:
            if was:
                collect()
                install()
