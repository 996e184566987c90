"""Calls that the hot path does not take: keywords, spread ints, overloads and ``out=``."""

from __future__ import annotations

from typing import Any

from . import calls
from .dispatch import HOOKS, Dispatcher, dispatch, normalized
from .dtypes import can_cast
from .errors import ArgumentError, AutogradError, CoreDispatchError, DTypeError, ShapeError
from .operator import Operator
from .schema import REQUIRED
from .table import TABLE
from .value import Value, bump_version, dtype_of

__all__ = ["bind", "complete"]

#: NumPy's spellings, accepted where PyTorch accepts them
_SPELLINGS = {"axis": "dim", "keepdims": "keepdim", "input": "self", "x": "self"}
#: the ``inside`` of an error whose own text names the call
_IN_TEXT = ""


def complete(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The full positional argument tuple in schema order; raises where it does not fit."""
    params = op.schema.params
    positional = op.positional
    if len(args) > positional:
        # x.view(2, 3), meshgrid(x, y): the last positional list takes all that is left
        last = positional - 1
        if last < 0 or params[last].kind not in ("IntList", "list[Tensor]"):
            plural = "" if positional == 1 else "s"
            raise _mismatch(op, f"takes {positional} positional argument{plural}, got {len(args)}")
        if any(isinstance(a, bool) for a in args[last:]):  # a flag of another signature
            raise _mismatch(op, f"got a bool among the {params[last].name!r}")
        args = (*args[:last], tuple(args[last:]))
    if not kwargs and len(args) == op.arity:
        return args
    given: dict[str, Any] = {}
    names = {p.name for p in params}
    for name, argument in kwargs.items():
        target = name
        if name not in names:
            target = _SPELLINGS.get(name, name)
            if target == "self" and params and params[0].is_tensor:
                target = params[0].name
        if target not in names:
            raise _mismatch(op, f"got an unexpected keyword argument {name!r}")
        if target in given or any(p.name == target for p in params[: len(args)]):
            raise _mismatch(op, f"got several values for argument {target!r}")
        given[target] = argument
    full = list(args)
    for param in params[len(args) :]:
        argument = given.get(param.name, REQUIRED)
        if argument is REQUIRED:
            argument = param.default
        if argument is REQUIRED:
            raise _mismatch(op, f"missing the argument {param.name!r}")
        full.append(argument)
    return tuple(full)


def _mismatch(op: Operator, problem: str) -> DTypeError:
    """The error of arguments that do not fit the signature of ``op``."""
    error = DTypeError(f"{op.name}() {problem}", fix=f"the signature is {op.signature}")
    error.inside = _IN_TEXT
    return error


def bind(dispatcher: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``dispatcher`` with arguments as a user spelt them."""
    op = dispatcher
    assert isinstance(op, Operator)
    if "out" in kwargs and all(p.name != "out" for p in op.schema.params):
        kwargs = dict(kwargs)
        return _into(op, args, kwargs.pop("out"), kwargs)
    try:
        full = complete(op, args, kwargs)
        full = normalized(op, full, op.arity)
        if op.ambiguous:
            calls.check_types(op, full)
    except DTypeError as error:
        found = _overload(op.overloads, args, kwargs, error)
        if isinstance(found, tuple):
            other, alternative = found
            positional, keywords = _spread(other, alternative)
            return other.function(*positional, **keywords)
        if found is error and op.functional is not None:
            return _inplace_overload(op, op.functional, args, kwargs, error)
        if found is error and op.overloads and error.inside == _IN_TEXT:
            signatures = "; ".join([op.signature, *(o.signature for o in op.overloads)])
            error.fix = f"the signatures are {signatures}"
        if found.inside is None:
            found.inside = calls.describe_call(op, args)
        raise found from None
    return dispatch(op, full)


def _spread(op: Operator, full: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    params = op.schema.params
    return (
        [a for p, a in zip(params, full, strict=True) if not p.keyword_only],
        {p.name: a for p, a in zip(params, full, strict=True) if p.keyword_only},
    )


def _overload(
    overloads: list[Operator], args: tuple[Any, ...], kwargs: dict[str, Any], error: DTypeError
) -> tuple[Operator, tuple[Any, ...]] | DTypeError:
    """The first overload that takes the arguments, with all of them.

    Where none does, the error to raise: that of the one overload whose signature fits while a
    type in it does not, if ``error`` says that the main signature does not fit; else ``error``.
    """
    nearest: list[DTypeError] = []
    for other in overloads:
        try:
            full = complete(other, args, kwargs)
        except DTypeError:
            continue
        try:
            full = normalized(other, full, other.arity)
            calls.check_types(other, full)
        except DTypeError as refused:
            nearest.append(refused)
            continue
        return other, full
    return nearest[0] if len(nearest) == 1 and error.inside == _IN_TEXT else error


def _inplace_overload(
    op: Operator,
    functional: Operator,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: DTypeError,
) -> Any:
    """``x.add_(y, alpha=2)``: the functional overload, written into self by ``copy_``."""
    found = _overload(functional.overloads, args, kwargs, error)
    if isinstance(found, tuple):
        positional, keywords = _spread(*found)
        return TABLE.operator("copy_")(args[0], found[0].function(*positional, **keywords))
    if found.inside is None:
        found.inside = calls.describe_call(op, args)
    raise found from None


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
                f"the result is {calls.describe(result)}, out is {calls.describe(out)}",
                fix="pass an out on the same device",
            )
        shape, wanted = tuple(result.raw.shape), tuple(out.raw.shape)
        if shape != wanted:
            if 0 not in wanted or out._view is not None:
                raise ShapeError(
                    f"the result has shape {shape}, but out has shape {wanted}",
                    fix="pass an out of the result's shape, or an empty one to be resized",
                )
            out.raw = TABLE.operator("clone")(result).raw
            bump_version(out)
        else:
            TABLE.operator("copy_")(out, result)
    except CoreDispatchError as error:
        error.call = error.call or f"{op.name}(..., out={calls.describe(out)})"
        raise


HOOKS.bind = bind
