"""``out=``: a result that is written into a tensor of the caller's.

Interpreted: a trace looks at who compares a size, and does not see compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.registry.around import checks
from coredispatch.registry.around.devices import mixed
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import can_cast
from coredispatch.registry.model.errors import (
    ArgumentError,
    AutogradError,
    CoreDispatchError,
    DTypeError,
    ShapeError,
)
from coredispatch.registry.model.value import Value, bump_version, dtype_of

__all__ = ["write_into"]


def write_into(
    op: Operator,
    args: tuple[Any, ...],
    out: Any,
    kwargs: dict[str, Any],
    recording: Callable[[int], bool],
) -> Any:
    """``op(..., out=tensor)``: compute, check, write into ``tensor`` and return it.

    ``recording`` tells whether autograd would record a call with some keys.
    """
    if op.schema.plain:
        raise DTypeError(
            f"{op.name}() returns {op.schema.returns}, which cannot be written into out=",
            fix="leave out= away",
        )
    computed = op(*args, **kwargs)
    several = isinstance(computed, (tuple, list))
    if several and not isinstance(out, (tuple, list)):
        raise DTypeError(f"{op.name}(): out must be a tuple of tensors", fix="out=(a, b)")
    targets, results = (list(out), list(computed)) if several else ([out], [computed])
    for target in targets:
        if not isinstance(target, Value):
            raise DTypeError(
                f"{op.name}(): out must be a tensor, not {type(target).__name__}",
                fix="pass a tensor of the result's shape, or leave out= away",
            )
    if len(results) != len(targets):
        raise ArgumentError(
            f"{op.name}(): out has {len(targets)} tensors, the result {len(results)}",
            fix=f"pass {len(results)} tensors",
        )
    for target, result in zip(targets, results, strict=True):
        if recording(result.keys | target.keys):
            raise AutogradError(
                f"{op.name}(): functions with out=... arguments do not support automatic "
                "differentiation, but one of the arguments requires grad",
                fix="leave out= away, detach the arguments, or use cd.no_grad()",
            )
        _check_out(op, target, result)
    for target, result in zip(targets, results, strict=True):
        if tuple(result.raw.shape) == tuple(target.raw.shape):
            TABLE.operator("copy_")(target, result)
        else:
            target.raw = TABLE.operator("to_dtype")(result, dtype_of(target)).raw
            bump_version(target)
    if not several:
        return out
    make = getattr(type(computed), "_make", type(computed))  # the named results of max, sort ...
    return make(targets)


def _check_out(op: Operator, out: Value, result: Value) -> None:
    """Refuse a result that ``out`` cannot hold."""
    source, dtype = dtype_of(result), dtype_of(out)
    shape, wanted = tuple(result.raw.shape), tuple(out.raw.shape)
    error: CoreDispatchError | None = None
    if not can_cast(source, dtype):
        error = DTypeError(
            f"the result has dtype {source}, which cannot be written into out of {dtype}",
            fix=f"pass an out of dtype {source}",
        )
    elif (result.keys ^ out.keys) & TABLE.snapshot.order.backend_bits:
        error = ArgumentError(
            f"the result is {checks.describe(result)}, out is {checks.describe(out)}",
            fix="pass an out on the same device",
        )
    elif (here := getattr(result, "device", None)) != (there := getattr(out, "device", None)):
        error = mixed(f"a result on {here}", f"an out on {there}", str(there))
    elif shape != wanted and (0 not in wanted or out._view is not None):
        error = ShapeError(
            f"the result has shape {shape}, but out has shape {wanted}",
            fix="pass an out of the result's shape, or an empty one to be resized",
        )
    if error is not None:
        error.call = f"{op.name}(..., out={checks.describe(out)})"
        raise error
