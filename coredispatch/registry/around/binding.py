"""Calls that the hot path does not take: keywords, spread ints, overloads and ``out=``."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from coredispatch.registry.around import checks
from coredispatch.registry.around.arguments import completed, mismatch
from coredispatch.registry.dispatch.dispatcher import Dispatcher, dispatch, normalized
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

__all__ = ["bind"]


def bind(dispatcher: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``dispatcher`` with arguments as a user spelt them."""
    op = dispatcher
    assert isinstance(op, Operator)
    if "out" in kwargs and all(p.name != "out" for p in op.schema.params):
        kwargs = dict(kwargs)
        return _into(op, args, kwargs.pop("out"), kwargs)
    full = completed(op, args, kwargs)
    error: DTypeError | None = None
    if isinstance(full, tuple):
        try:
            full = normalized(op, full, op.arity)
            if op.ambiguous:
                checks.check_types(op, full)
        except DTypeError as refused:
            error = refused
        else:
            return dispatch(op, full)
    inplace = op.inplace_of is not None
    overloads = op.inplace_of.overloads if op.inplace_of is not None else op.overloads
    found = _overload(overloads, args, kwargs, error)
    if isinstance(found, tuple):
        other, full = found
        assert other.body is not None
        result = other.body(*full)
        return TABLE.operator("copy_")(args[0], result) if inplace else result
    if found is None:
        assert isinstance(full, str)
        found = mismatch(op, full)
        if op.overloads:
            signatures = "; ".join([op.signature, *(o.signature for o in op.overloads)])
            found.fix = f"the signatures are {signatures}"
    elif found.inside is None:
        found.inside = checks.describe_call(op, args)
    raise found from None


def _overload(
    overloads: list[Operator],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: DTypeError | None,
) -> tuple[Operator, tuple[Any, ...]] | DTypeError | None:
    """The first overload that takes the arguments, with all of them.

    Where none does, the error to raise: ``error``, if the main signature fits and a type does
    not; else that of the one overload of which this is true; None where there is no such one.
    """
    nearest: list[tuple[Operator, tuple[Any, ...]]] = []
    for other in overloads:
        full = completed(other, args, kwargs)
        if isinstance(full, str):
            continue
        with suppress(DTypeError):
            ready = normalized(other, full, other.arity)
            if checks.unfit(other, ready) is None:
                return other, ready
        nearest.append((other, full))
    if error is None and len(nearest) == 1:
        try:
            other, full = nearest[0]
            checks.check_types(other, normalized(other, full, other.arity))
        except DTypeError as refused:
            return refused
    return error


def _into(op: Operator, args: tuple[Any, ...], out: Any, kwargs: dict[str, Any]) -> Any:
    """``op(..., out=tensor)``: compute, check, write into ``tensor`` and return it."""
    if op.schema.several:
        if not isinstance(out, (tuple, list)):
            raise DTypeError(f"{op.name}(): out must be a tuple of tensors", fix="out=(a, b)")
        results = op(*args, **kwargs)
        for target, result in zip(out, results, strict=True):
            _write(op, target, result)
        return out
    if not isinstance(out, Value):
        raise DTypeError(
            f"{op.name}(): out must be a tensor, not {type(out).__name__}",
            fix="pass a tensor of the result's shape, or leave out= away",
        )
    autograd = TABLE.snapshot.order.by_name.get("autograd")
    result = op(*args, **kwargs)
    if autograd is not None and (result.keys | out.keys) & autograd.bit:
        raise AutogradError(
            f"{op.name}(): functions with out=... arguments do not support automatic "
            "differentiation, but one of the arguments requires grad",
            fix="leave out= away, or detach the arguments",
        )
    _write(op, out, result)
    return out


def _write(op: Operator, out: Any, result: Any) -> None:
    if not isinstance(out, Value):
        raise DTypeError(f"{op.name}(): out must be a tensor, not {type(out).__name__}")
    source, dtype = dtype_of(result), dtype_of(out)
    try:
        if not can_cast(source, dtype):
            raise DTypeError(
                f"the result has dtype {source}, which cannot be written into out of {dtype}",
                fix=f"pass an out of dtype {source}",
            )
        backends = TABLE.snapshot.order.backend_bits
        if (result.keys ^ out.keys) & backends:
            raise ArgumentError(
                f"the result is {checks.describe(result)}, out is {checks.describe(out)}",
                fix="pass an out on the same device",
            )
        shape, wanted = tuple(result.raw.shape), tuple(out.raw.shape)
        if shape != wanted:
            if 0 not in wanted or out._view is not None:
                raise ShapeError(
                    f"the result has shape {shape}, but out has shape {wanted}",
                    fix="pass an out of the result's shape, or an empty one to be resized",
                )
            out.raw = TABLE.operator("to_dtype")(result, dtype).raw
            bump_version(out)
        else:
            TABLE.operator("copy_")(out, result)
    except CoreDispatchError as error:
        error.call = error.call or f"{op.name}(..., out={checks.describe(out)})"
        raise
