"""Forward mode from the derivative of reverse mode.

The formulas of a derivative compute ``g(u) = J^H u``, which is linear in the cotangent ``u``. The
gradient of ``g`` with respect to ``u``, for the cotangent ``t``, is ``J t``: the tangent of the
result (the "double backward trick", J. Townsend 2017, "A new trick for calculating Jacobian vector
products").
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.modes import enable_grad
from coredispatch.frontend.transforms.levels import current, top_level
from coredispatch.frontend.transforms.reverse import Graph, tracked
from coredispatch.plugin import Value, dtype_of, operator
from coredispatch.registry.model.derivative import (
    ARGUMENT,
    DEVICE,
    GRAD,
    GRAD_AT,
    GRADS,
    KIND,
    NUMBER,
    OUT,
    OUT_AT,
    SHAPE,
    STRIDES,
    saved_argument,
)

__all__ = ["formula_of", "transposed"]


def _arguments(formula: Any, grads: Any, out: Any, args: tuple[Any, ...]) -> list[Any]:
    """What a formula names, for these gradients of the outputs."""
    several = isinstance(out, (list, tuple))
    found: list[Any] = []
    for source in formula.sources:
        kind, number = source & KIND, source >> NUMBER
        if kind in (ARGUMENT, SHAPE, DEVICE, STRIDES):
            found.append(saved_argument(args, source))
        elif kind in (GRAD, GRADS):
            found.append(tuple(grads) if several else grads[0])
        elif kind == GRAD_AT:
            found.append(grads[number])
        elif kind == OUT_AT:
            found.append(out[number])
        else:
            assert kind == OUT
            found.append(tuple(out) if several else out)
    return found


def formula_of(op: Any, index: int, grad: Any, out: Any, args: tuple[Any, ...]) -> Any:
    """The gradient that the derivative of ``op`` gives its ``index``-th tensor parameter."""
    rule = op.vjp_rule
    if rule.joint is None:
        formula = rule.formulas[index]
        return None if formula is None else formula.fn(*_arguments(formula, [grad], out, args))
    made = rule.joint.fn(*_arguments(rule.joint, [grad], out, args))
    part = made[index] if isinstance(made, (tuple, list)) else made
    return part() if callable(part) and not isinstance(part, Value) else part


def _gradients(op: Any, us: list[Any], out: Any, args: Any, tangents: Any) -> list[Any]:
    """``(gradient, tangent)`` for every tensor that has a tangent."""
    rule = op.vjp_rule
    joint = None
    if rule.joint is not None:
        joint = rule.joint.fn(*_arguments(rule.joint, us, out, args))
        if len(rule.tensors) == 1 and not (isinstance(joint, tuple) and not rule.lists):
            joint = (joint,)
    pairs: list[Any] = []
    for index, position in enumerate(rule.tensors):
        tangent = tangents[position]
        if tangent is None or (
            isinstance(tangent, tuple) and not any(t is not None for t in tangent)
        ):
            continue
        if joint is not None:
            made = joint[index]
        else:
            formula = rule.formulas[index]
            if formula is None:
                continue
            made = formula.fn(*_arguments(formula, us, out, args))
        if made is not None and not isinstance(made, (Value, list, tuple)):
            made = made()
        if isinstance(tangent, tuple):
            pairs += zip(made or (None,) * len(tangent), tangent, strict=True)
        else:
            pairs.append((made, tangent))
    return [(g, t) for g, t in pairs if g is not None and t is not None]


def _fitting(tangent: Any, gradient: Any) -> Any:
    """The tangent in the shape and dtype of a gradient that the walker would have summed."""
    if tuple(tangent.raw.shape) != tuple(gradient.raw.shape):
        tangent = operator("expand")(tangent, tuple(gradient.raw.shape))
    if dtype_of(tangent) is not dtype_of(gradient):
        tangent = operator("to_dtype")(tangent, dtype_of(gradient))
    return tangent


class _At:
    """A level by its number alone, to track values of its depth."""

    def __init__(self, number: int, lift: Any) -> None:
        self.number, self.lift = number, lift


def _depth(values: Any) -> Any:
    """The level of the highest wrapper among ``values``."""
    top = top_level(values)
    found = next((level for level in current() if level.number == top), None)
    if found is not None or not top:
        return found or _At(0, None)
    return _At(top, _lift_of(values, top))


def _lift_of(values: Any, top: int) -> Any:
    for value in values:
        if isinstance(value, Value) and getattr(value.raw, "level", 0) == top:
            return value.raw.lift
        if isinstance(value, (list, tuple)):
            found = _lift_of(value, top)
            if found is not None:
                return found
    return None


def transposed(op: Any, args: tuple[Any, ...], tangents: tuple[Any, ...], out: Any) -> Any:
    """The tangent of ``out``, or a list with one for each of several results."""
    several = not isinstance(out, Value)
    outs = list(out) if several else [out]
    level = _depth((*args, *outs))
    # Ones, not zeros: a formula may leave out what it multiplies by zero.
    us = [
        tracked(operator("ones_like")(o), level) if dtype_of(o).category >= 2 else None
        for o in outs
    ]
    zeros = [operator("zeros_like")(o) if u is None else u for o, u in zip(outs, us, strict=True)]
    with enable_grad():
        pairs = _gradients(op, zeros, out, args, tangents)
    graph = Graph([u for u in us if u is not None], [g for g, _ in pairs])
    found = iter(graph.gradients([_fitting(t, g) for g, t in pairs], False)) if pairs else None
    graph.finish()
    if found is None:
        return [None] * len(outs) if several else None
    made = [None if u is None else next(found) for u in us]
    return made if several else made[0]
