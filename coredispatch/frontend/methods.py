"""Operators as methods of ``Tensor``, kept in step with the table."""

from __future__ import annotations

import functools
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch import method_of
from coredispatch.registry.operator import Operator
from coredispatch.registry.table import TABLE, Snapshot

__all__ = ["install"]

_installed: dict[str, Operator] = {}
#: what the class itself defines is never replaced by an operator of the same name
_own = {name for cls in Tensor.__mro__ for name in vars(cls)}


def _methods(snapshot: Snapshot) -> dict[str, Operator]:
    methods: dict[str, Operator] = {}
    for op in snapshot.ops.values():
        if op.method:
            aliases = op.alias
            if op.functional is not None:
                aliases = tuple(alias + "_" for alias in op.functional.alias)
            names = (op.name, *aliases)
            for name in names:
                methods.setdefault(name, op)
    return methods


def _method(op: Operator) -> Any:
    method = method_of(op)
    functools.update_wrapper(method, op, updated=())
    method.__wrapped__ = op
    return method


def install(snapshot: Snapshot) -> None:
    """Set the methods of the snapshot's operators; remove those of operators that are gone."""
    wanted = _methods(snapshot)
    for name in [n for n in _installed if n not in wanted]:
        delattr(Tensor, name)
        del _installed[name]
    for name, op in wanted.items():
        if _installed.get(name) is not op and name not in _own:
            setattr(Tensor, name, _method(op))
            _installed[name] = op


TABLE.watchers.append(install)
install(TABLE.snapshot)
