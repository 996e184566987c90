"""The operators of the table as public names: ``cd.NAME``, ``cd.ops.NAME``, ``cd.fft.NAME``."""

from __future__ import annotations

import sys
from typing import Any

from coredispatch.frontend.creation import with_requires_grad
from coredispatch.registry.around.loader import plugins
from coredispatch.registry.dispatch.table import TABLE, layout_dtype
from coredispatch.registry.model.errors import RegistrationError

__all__ = ["late_name", "operators", "ops"]


class LibraryError(NotImplementedError, OSError):
    """A library of C++ operators cannot be loaded, which PyTorch says with an OSError."""


class _Operators:
    """``cd.ops.NAME``: every operator of the table, those of plugins included.

    It stands where the package ``coredispatch.ops`` would, so it answers for its modules as well:
    ``import coredispatch.ops.support.samples as samples`` asks here.
    """

    def __init__(self) -> None:
        self._known: tuple[Any, set[str]] = (None, set())

    def __getattr__(self, name: str) -> Any:
        found = TABLE.snapshot.ops.get(name)
        if found is not None:
            return found
        if name == "profiler":
            from coredispatch.frontend.profiler import record_operators

            return record_operators
        if name == "aten" or name in self._namespaces():
            from coredispatch.frontend.library.overloads import OpNamespace

            return OpNamespace(name)
        plugins.discover()
        found = TABLE.snapshot.ops.get(name)
        if found is None:
            module = sys.modules.get(f"coredispatch.ops.{name}")
            if module is not None:
                return module
            try:
                return TABLE.operator(name)
            except RegistrationError as error:
                raise AttributeError(str(error)) from None
        return found

    def _namespaces(self) -> set[str]:
        """What stands before ``::`` in the names of operators, of one state of the table."""
        ops = TABLE.snapshot.ops
        if self._known[0] is not ops:
            self._known = (ops, {name.partition("::")[0] for name in ops if "::" in name})
        return self._known[1]

    @property
    def loaded_libraries(self) -> set[str]:
        """The shared libraries that brought operators: none."""
        return set()

    def load_library(self, path: Any) -> None:
        """torchvision's library, whose operators are defined in Python; others are refused.

        Raises :class:`LibraryError`, an OSError: what is compiled for PyTorch cannot be loaded.
        """
        parts = str(path).replace("\\", "/").split("/")
        if len(parts) > 1 and parts[-2] == "torchvision" and parts[-1].startswith("_C"):
            from coredispatch.frontend.library.torchvision_ops import define_operators

            return define_operators()
        raise LibraryError(
            f"ops.load_library({str(path)!r}): libraries compiled for PyTorch cannot be loaded; "
            "define the operators with cd.library.custom_op"
        )

    def __dir__(self) -> list[str]:
        return sorted(TABLE.snapshot.ops)


ops = _Operators()


#: by namespace: a state of the table, and the operators in it
_found: dict[str, tuple[Any, dict[str, Any]]] = {}


def operators(namespace: str = "") -> dict[str, Any]:
    """The operators of a namespace under all their names; factories take ``requires_grad=``.

    Names that plugins bring are looked up here each time a program reads one: the answer is kept
    until the table changes.
    """
    table = TABLE.snapshot
    known = _found.get(namespace)
    if known is not None and known[0] is table:
        return known[1]
    found: dict[str, Any] = {}
    for op in table.ops.values():
        if namespace in op.namespaces:
            function = with_requires_grad(op) if op.factory or op.name.endswith("_like") else op
            # The operator behind cd.linalg.norm is called linalg_norm: names are unique.
            prefix = namespace.rpartition(".")[2] + "_"
            for name in (op.name, *op.alias):
                found.setdefault(name.removeprefix(prefix) if namespace else name, function)
    _found[namespace] = table, found
    return found


def late_name(name: str) -> Any:
    """A top-level operator or an element type that a plugin brought along, or None."""
    if name.startswith("__"):
        return None
    plugins.discover()
    return operators().get(name) or layout_dtype(name)
