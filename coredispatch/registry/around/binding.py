"""Calls that the hot path does not take: keywords, spread ints, overloads and ``out=``."""

from __future__ import annotations

from typing import Any, Final

from coredispatch.registry.around import checks
from coredispatch.registry.around.arguments import completed, mismatch
from coredispatch.registry.dispatch.dispatcher import Dispatcher, canonicalized, dispatch, keys_of
from coredispatch.registry.dispatch.masks import masked
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import (
    CoreDispatchError,
    DTypeError,
)
from coredispatch.registry.model.value import Value
from coredispatch.registry.wiring import HOOKS

__all__ = ["bind"]

_NUMBERS: Final = (int, float, bool)
_PLAIN: Final = (int, float, bool, str, type(None))


def bind(dispatcher: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``dispatcher`` with arguments as a user wrote them."""
    op = dispatcher
    assert isinstance(op, Operator)
    by_keys = TABLE.snapshot.written
    if by_keys:
        keys = _written_keys((args, *kwargs.values()))
        for bit, written in by_keys:
            if bit & keys:
                return written(op, args, kwargs)
    if "out" in kwargs and all(p.name != "out" for p in op.schema.params):
        kwargs = dict(kwargs)
        out = kwargs.pop("out")
        if out is not None and op.inplace_of is not None:
            raise mismatch(op, "got an unexpected keyword argument 'out': it writes to self")
        if out is not None:
            return HOOKS.write_into(op, args, out, kwargs, _recording)
    full = completed(op, args, kwargs)
    error: DTypeError | None = None
    if isinstance(full, tuple):
        try:
            full = canonicalized(op, full, op.arity)
            if op.ambiguous and _fits(op, full) <= 0 and not _foreign(full):
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
        if not inplace:
            return other.decomposition(*full)
        if other.rewrite is not None:
            return op(*other.rewrite(*full))
        return _write_overload(op, other, full)
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
    for item in args:
        if isinstance(item, Value) or type(item) in _PLAIN:
            continue
        if isinstance(item, (list, tuple)):
            if _foreign(tuple(item)):
                return True
        elif HOOKS.foreign(type(item)) != 0:
            return True
    return False


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
        elif argument is None:
            if not (param.optional or param.default is None):
                return 0
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
