"""Calls that the hot path does not take: keywords, spread ints, overloads and ``out=``."""

from __future__ import annotations

from typing import Any, Final

from coredispatch.registry.around import checks
from coredispatch.registry.around.arguments import completed, mismatch
from coredispatch.registry.around.devices import mixed
from coredispatch.registry.dispatch.dispatcher import Dispatcher, canonicalized, dispatch, keys_of
from coredispatch.registry.dispatch.masks import masked
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
from coredispatch.registry.wiring import HOOKS

__all__ = ["bind"]

_NUMBERS: Final = (int, float, bool)


def bind(dispatcher: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``dispatcher`` with arguments as a user wrote them."""
    op = dispatcher
    assert isinstance(op, Operator)
    for bit, written in TABLE.snapshot.written:
        if bit & _written_keys((args, *kwargs.values())):
            return written(op, args, kwargs)
    if "out" in kwargs and all(p.name != "out" for p in op.schema.params):
        kwargs = dict(kwargs)
        out = kwargs.pop("out")
        if out is not None and op.inplace_of is not None:
            raise mismatch(op, "got an unexpected keyword argument 'out': it writes to self")
        if out is not None:
            return _into(op, args, out, kwargs)
    full = completed(op, args, kwargs)
    error: DTypeError | None = None
    if isinstance(full, tuple):
        try:
            full = canonicalized(op, full, op.arity)
            if op.ambiguous and not _foreign(full):
                checks.check_kinds(op, full)
        except DTypeError as refused:
            if _foreign(full):  # its class takes the arguments as they are
                return dispatch(op, full)
            error = refused
        else:
            return dispatch(op, full)
    inplace = op.inplace_of is not None
    overloads = op.inplace_of.overloads if op.inplace_of is not None else op.overloads
    found = _overload(overloads, args, kwargs, error)
    if isinstance(found, tuple):
        other, full = found
        assert other.decomposition is not None
        keys = masked(keys_of(other, full))
        if keys & HOOKS.overriding:
            result = HOOKS.override(op, keys, args, kwargs)
            if result is not NotImplemented:
                return result
        return _write_overload(op, other, full) if inplace else other.decomposition(*full)
    if _foreign((*args, *kwargs.values())):
        return HOOKS.override(op, HOOKS.overriding, args, kwargs)
    if found is None:
        assert isinstance(full, str)
        found = mismatch(op, full)
        if op.overloads:
            signatures = "; ".join([op.signature, *(o.signature for o in op.overloads)])
            found.fix = f"the signatures are {signatures}"
    elif found.inside is None:
        found.inside = checks.describe_call(op, args)
    raise found from None


def _foreign(args: tuple[Any, ...]) -> bool:
    """Whether an object that is no tensor brings keys of its own."""
    return any(
        _foreign(tuple(item))
        if isinstance(item, (list, tuple))
        else not isinstance(item, Value) and HOOKS.foreign(type(item)) != 0
        for item in args
    )


def _written_keys(arguments: Any) -> int:
    """The keys of all tensors among arguments that are not brought into the signature's order."""
    keys = 0
    for argument in arguments:
        if isinstance(argument, Value):
            keys |= argument.keys
        elif isinstance(argument, (tuple, list)):
            keys |= _written_keys(argument)
    return keys


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
        try:
            ready = canonicalized(other, full, other.arity)
            fits = _fits(other, ready)
            if fits > 0 or (fits == 0 and checks.unfit(other, ready) is None):
                return other, ready
        except DTypeError:
            pass
        nearest.append((other, full))
    if error is None and len(nearest) == 1:
        try:
            other, full = nearest[0]
            checks.check_types(other, canonicalized(other, full, other.arity))
        except DTypeError as refused:
            return refused
    return error


def _fits(op: Operator, args: tuple[Any, ...]) -> int:
    """1 where each argument is of the very type that stands for its kind, -1 for a number where
    only a tensor may stand, 0 where a closer look is needed, which takes ten times as long.
    """
    for param, argument in zip(op.schema.params, args):
        kind, given = param.kind, type(argument)
        if isinstance(argument, Value):
            if kind != "Tensor":
                return 0
        elif kind == "Tensor":
            return -1 if not param.scalar and given in _NUMBERS else 0
        elif given is int:
            if kind != "int" and kind != "Scalar":
                return 0
        elif given is float:
            if kind != "Scalar":
                return 0
        elif given is not bool or kind != "bool":
            return 0
    return 1


def _write_overload(op: Operator, other: Operator, full: tuple[Any, ...]) -> Any:
    """The in-place form ``op`` called by the signature of the overload ``other``."""
    target = full[0]
    assert other.decomposition is not None
    try:
        past = target
        if _recording(keys_of(other, full)):  # the graph may ask for what self was
            past = TABLE.operator("clone")(target)
        result = other.decomposition(
            *[past if argument is target else argument for argument in full]
        )
        checks.check_write(target, result.raw)
        return TABLE.operator("copy_")(target, result)
    except CoreDispatchError as error:
        error.call = checks.describe_call(op, full)
        raise


def _recording(keys: int) -> bool:
    """Whether autograd would record a call with these keys."""
    autograd = TABLE.snapshot.order.by_name.get("autograd")
    return autograd is not None and bool(masked(keys) & autograd.bit)


def _into(op: Operator, args: tuple[Any, ...], out: Any, kwargs: dict[str, Any]) -> Any:
    """``op(..., out=tensor)``: compute, check, write into ``tensor`` and return it."""
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
        if _recording(result.keys | target.keys):
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
