"""What the nodes of a graph do, in the terms of kernels. Importing this imports no Numba."""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import passes

from .expressions import letter, write
from .operands import Call

__all__ = ["call_of", "complete"]


def complete(node: Any) -> list[Any]:
    """The arguments of an operator's node, in the order of the schema, defaults filled in."""
    params = node.target.schema.params
    args = list(node.args[: len(params)])
    return args + [node.kwargs.get(p.name, p.default) for p in params[len(args) :]]


def _dtype_of(argument: Any) -> Any:
    info = passes.inference.tensor_info(argument) if hasattr(argument, "graph") else None
    return None if info is None else info.dtype


def call_of(node: Any) -> Call | None:
    """What a node does, in the terms of a kernel; None where no kernel does it."""
    info, op = passes.inference.tensor_info(node), node.target
    kind = letter(info.dtype) if info is not None else None
    if kind is None:
        return None
    args = complete(node)
    if op.name in passes.fusion.REDUCTIONS:
        own = _dtype_of(args[0])
        plain = own == info.dtype and kind in "fd"
        return Call(node, kind, None, op.name, args[0], info.shape, None) if plain else None
    name = op.name[:-1] if op.mutates else op.name
    written = write(name, args, kind, _dtype_of)
    target = args[0] if op.mutates else None
    return None if written is None else Call(node, kind, written, "", None, info.shape, target)
