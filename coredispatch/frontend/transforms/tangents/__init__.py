"""What ``jvp`` does with each operator: the rules of :mod:`.rules`, and two general ways.

An operator with a derivative for reverse mode has one for forward mode: the gradient is linear in
the cotangent, so its own gradient with respect to the cotangent is the tangent
(:mod:`.transposed`). A composite without a derivative is decomposed. An operator of a plugin may
bring a direct rule::

    @my_op.rule("jvp")
    def _(args, tangents, out):
        return tangent_of_out
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.transforms.levels import IN_FORCE, Dual, wrapped
from coredispatch.frontend.transforms.tangents import inplace
from coredispatch.frontend.transforms.tangents.rules import RULES
from coredispatch.frontend.transforms.tangents.transposed import transposed
from coredispatch.plugin import (
    AutogradError,
    MissingKernel,
    Value,
    describe_call,
    dispatch,
    dtype_of,
)

__all__ = ["RULES", "serve"]


def serve(call: Any, args: tuple[Any, ...], level: int) -> Any:
    """The result of ``call.op(*args)`` at the forward mode of this level."""
    op = call.op
    if level not in IN_FORCE:
        return dispatch(op, opened(args, level)[0])
    if op.inplace_of is not None:
        return inplace.derived(op, args, level)
    rule = op.rules.get("jvp") or RULES.get(op.name)
    if rule is None and "autograd" in op.rules:
        # What it is made of may be no operators: its tangent would be lost.
        if _any(opened(args, level)[1]):
            raise _no_tangent(op, args)
        return dispatch(op, opened(args, level)[0])
    if rule is None and op.vjp_rule is None and op.differentiable and op.decomposition:
        return call.decompose(args)
    primals, tangents = opened(args, level)
    out = dispatch(op, primals)
    if not _any(tangents):
        return _constant(out, level) if op.view else out
    if op.refuses_gradient:
        raise _no_tangent(op, args)
    if not op.differentiable:
        return out
    if rule is not None:
        return _dual(op, out, rule(op, primals, tangents, out), level)
    if op.vjp_rule is None:
        raise _no_tangent(op, args)
    return _dual(op, out, transposed(op, primals, tangents, out), level)


def _no_tangent(op: Any, args: tuple[Any, ...]) -> Exception:
    error = MissingKernel(
        f"{op.name!r} has no derivative, so that forward mode cannot go through it",
        fix=f"give it one: @{op.name}.vjp, or @{op.name}.rule('jvp')",
    )
    error.call = describe_call(op, args)
    return error


def opened(args: Any, level: int) -> tuple[Any, Any]:
    """The arguments without tangents, and the tangents (None where there is none)."""
    primals, tangents = [], []
    for item in args:
        tangent = None
        if isinstance(item, Value):
            raw = item.raw
            if isinstance(raw, Dual) and raw.level == level:
                item, tangent = raw.value, raw.tangent
        elif type(item) is list or type(item) is tuple:
            inner, tangent = opened(item, level)
            item = list(inner) if type(item) is list else inner
        primals.append(item)
        tangents.append(tangent)
    return tuple(primals), tuple(tangents)


def _any(tangents: Any) -> bool:
    return any(_any(t) if isinstance(t, tuple) else t is not None for t in tangents)


def _constant(out: Any, level: int) -> Any:
    """A view of what has no tangent, which may get one when it is written to."""
    if isinstance(out, Value):
        return wrapped(Dual(out, level, None))
    return type(out)(_constant(item, level) for item in out)


def _dual(op: Any, out: Any, tangent: Any, level: int) -> Any:
    if isinstance(out, Value):
        if tangent is None or dtype_of(out).category < 2:
            return out
        if tuple(tangent.raw.shape) != tuple(out.raw.shape):
            raise AutogradError(
                f"the jvp of {op.name!r} returned a tangent of shape {tuple(tangent.raw.shape)} "
                f"for a result of shape {tuple(out.raw.shape)}",
                fix="return a tangent of the result's own shape",
            )
        return wrapped(Dual(out, level, tangent))
    pairs = zip(out, tangent, strict=True)
    return op.result_type([_dual(op, o, t, level) for o, t in pairs])
