"""What layers and generic kernels need that make tensors themselves: views and dtypes.

Kernels over raw arrays need none of it: there, the dispatcher links views and counts writes.
"""

from __future__ import annotations

from typing import Any

from coredispatch.registry.around.checks import participants
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.model.dtypes import DType, Promotion
from coredispatch.registry.model.value import Value, ViewLink

__all__ = ["base_of", "is_view", "result_dtype", "view_link"]


def is_view(tensor: Value) -> bool:
    """Whether ``tensor`` is a view: the result of a view operator, which shares its storage."""
    return tensor._view is not None


def base_of(tensor: Value) -> Value | None:
    """What ``tensor`` is a view of: an argument of the operator that made it. None for no view."""
    return None if tensor._view is None else tensor._view.base


def view_link(tensor: Value) -> ViewLink | None:
    """How a view came about: ``op(base, *args)`` of its direct parent; None where it is no view.

    What replays views on other data needs it: functionalization, or a graph of views.
    """
    return tensor._view


def result_dtype(op: Operator, args: tuple[Any, ...]) -> Any:
    """What the dtype rule of ``op`` says for the complete arguments: a DType, or one per result.

    Raises :class:`DTypeError` for arguments that the rule refuses.
    """
    rule = op.dtype_rule
    if isinstance(rule, Promotion):
        return rule(*participants(op, args))
    return rule if isinstance(rule, DType) else rule(*args)
