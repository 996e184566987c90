"""What layers and generic kernels need that make tensors themselves: writes, views, versions.

Kernels over raw arrays need none of it: there, the dispatcher links views and counts writes.
"""

from __future__ import annotations

from typing import Any

from coredispatch.registry.around.checks import cannot_resize, participants
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.model.dtypes import DType, Promotion, can_cast
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.value import Value, dtype_of

__all__ = ["check_write", "is_view", "result_dtype"]


def is_view(tensor: Value) -> bool:
    """Whether ``tensor`` is a view: the result of a view operator, which shares its storage."""
    return tensor._view is not None


def result_dtype(op: Operator, args: tuple[Any, ...]) -> Any:
    """What the dtype rule of ``op`` says for the complete arguments: a DType, or one per result.

    Raises :class:`DTypeError` for arguments that the rule refuses.
    """
    rule = op.dtype_rule
    if isinstance(rule, Promotion):
        return rule(*participants(op, args))
    return rule if isinstance(rule, DType) else rule(*args)


def check_write(target: Value, result: Any) -> None:
    """Refuse to write ``result`` (raw data) into ``target``: another shape, or a dtype that does
    not fit. Raises :class:`ShapeError` or :class:`DTypeError`."""
    shape, wanted = tuple(result.shape), tuple(target.raw.shape)
    if shape != wanted:
        raise cannot_resize(shape, wanted)
    source, dtype = DType.of(result.dtype), dtype_of(target)
    if source is not dtype and not can_cast(source, dtype):
        raise DTypeError(
            f"the result has dtype {source}, which cannot be written into self of {dtype}",
            fix=f"use the out-of-place form, or convert the operands to {dtype}",
        )
