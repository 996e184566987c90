"""Operators as methods and properties of ``Tensor``, kept in step with the table."""

from __future__ import annotations

import copyreg
import functools
from types import FunctionType
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.dispatcher import method_of
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE, Snapshot

__all__ = ["install"]

_installed: dict[str, Operator] = {}
#: what the class itself defines is never replaced by an operator of the same name
_own = {name for cls in Tensor.__mro__ for name in vars(cls)}


def _methods(snapshot: Snapshot) -> dict[str, Operator]:
    methods: dict[str, Operator] = {}
    for op in snapshot.ops.values():
        if op.method:
            aliases = op.alias
            if op.inplace_of is not None:
                aliases = tuple(alias + "_" for alias in op.inplace_of.alias)
            names = (op.name, *aliases)
            for name in names:
                methods.setdefault(name, op)
    return methods


def _method(op: Operator, name: str) -> Any:
    method = method_of(op)
    functools.update_wrapper(method, op, updated=())
    method.__name__ = name
    # Where pickle finds it again. Compiled, it is an object and not a function: see below.
    method.__module__, method.__qualname__ = Tensor.__module__, f"Tensor.{name}"
    return method


def _reduce(method: Any) -> Any:
    return getattr, (Tensor, method.__name__)


if not isinstance(method_of, FunctionType):
    copyreg.pickle(type(method_of(TABLE.operator("add"))), _reduce)


def install(snapshot: Snapshot) -> None:
    """Set the methods of the snapshot's operators; remove those of operators that are gone."""
    wanted = _methods(snapshot)
    for name in [n for n in _installed if n not in wanted]:
        delattr(Tensor, name)
        del _installed[name]
    for name, op in wanted.items():
        if _installed.get(name) is not op and name not in _own:
            method = _method(op, name)
            setattr(Tensor, name, property(method) if op.property else method)
            _installed[name] = op


TABLE.watchers.append(install)
install(TABLE.snapshot)
