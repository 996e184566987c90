"""Direct rules: ``rule(op, args, tangents, out)`` returns the tangent of ``out``, or None for zero.

They are written in operators, on values of lower levels: a tangent has derivatives itself.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.transforms.batching.elementwise import ELEMENTWISE
from coredispatch.frontend.transforms.tangents.transposed import formula_of, transposed
from coredispatch.plugin import Value, dispatch, dtype_of, operator

__all__ = ["RULES"]


def zeros_like(value: Any) -> Any:
    """The tangent of a constant."""
    return operator("zeros_like")(value)


def linear(op: Any, args: tuple[Any, ...], tangents: tuple[Any, ...], out: Any) -> Any:
    """An operator that is linear in all its differentiable arguments together."""
    moved = []
    for position, (argument, tangent) in enumerate(zip(args, tangents, strict=True)):
        if position in op.tensors and position in _differentiable(op):
            if isinstance(argument, Value):
                tangent = zeros_like(argument) if tangent is None else tangent
            else:
                tangent = 0
            moved.append(tangent)
        elif op.schema.params[position].kind == "list[Tensor]":
            moved.append(
                [zeros_like(a) if t is None else t for a, t in zip(argument, tangent, strict=True)]
            )
        else:
            moved.append(argument)
    return dispatch(op, tuple(moved))


def _differentiable(op: Any) -> tuple[int, ...]:
    """Positions of the parameters that have a formula: indices and conditions have none."""
    rule = op.vjp_rule
    if rule is None or rule.joint is not None:
        return tuple(op.tensors)
    pairs = zip(rule.tensors, rule.formulas, strict=True)
    return tuple([p for p, formula in pairs if formula is not None])


def pointwise(op: Any, args: tuple[Any, ...], tangents: tuple[Any, ...], out: Any) -> Any:
    """A real elementwise operator: the derivative is diagonal, so its formula serves both ways."""
    if not isinstance(out, Value) or op.vjp_rule is None or _has_complex(args, out):
        return transposed(op, args, tangents, out)
    total = None
    for index, position in enumerate(op.vjp_rule.tensors):
        tangent = tangents[position]
        if tangent is None:
            continue
        if dtype_of(tangent) is not dtype_of(out):
            tangent = operator("to_dtype")(tangent, dtype_of(out))
        if tuple(tangent.raw.shape) != tuple(out.raw.shape):
            tangent = operator("expand")(tangent, tuple(out.raw.shape))
        part = formula_of(op, index, tangent, out, args)
        if part is not None:
            total = part if total is None else operator("add")(total, part)
    if total is None:
        return None
    if dtype_of(total) is not dtype_of(out):
        total = operator("to_dtype")(total, dtype_of(out))
    if tuple(total.raw.shape) != tuple(out.raw.shape):
        total = operator("expand")(total, tuple(out.raw.shape))
    return total


def _has_complex(args: tuple[Any, ...], out: Any) -> bool:
    return any(isinstance(x, Value) and dtype_of(x).is_complex for x in (*args, out))


def product(op: Any, args: tuple[Any, ...], tangents: tuple[Any, ...], out: Any) -> Any:
    """An operator of two tensors that is linear in each."""
    (a, b), (da, db) = args[:2], tangents[:2]
    rest = args[2:]
    left = None if da is None else dispatch(op, (da, b, *rest))
    right = None if db is None else dispatch(op, (a, db, *rest))
    if left is None or right is None:
        return right if left is None else left
    return operator("add")(left, right)


def affine(op: Any, args: tuple[Any, ...], tangents: tuple[Any, ...], out: Any) -> Any:
    """``linear(input, weight, bias)``."""
    (input, weight, _), (d_input, d_weight, d_bias) = args, tangents
    parts = []
    if d_input is not None:
        parts.append(dispatch(op, (d_input, weight, None)))
    if d_weight is not None:
        parts.append(dispatch(op, (input, d_weight, None)))
    if d_bias is not None:
        parts.append(operator("expand")(d_bias, tuple(out.raw.shape)))
    total = parts[0]
    for part in parts[1:]:
        total = operator("add")(total, part)
    return total


def padded(op: Any, args: tuple[Any, ...], tangents: tuple[Any, ...], out: Any) -> Any:
    """``constant_pad_nd``: zeros around the tangent."""
    return dispatch(op, (tangents[0], args[1], 0))


RULES: dict[str, Any] = {
    **dict.fromkeys(ELEMENTWISE, pointwise),
    **dict.fromkeys(
        [
            *("neg", "sum", "mean", "view", "reshape", "expand", "permute", "getitem", "clone"),
            *("contiguous", "flip", "cumsum", "to_dtype", "view_as_complex", "view_as_real"),
            *("cat", "stack", "gather", "scatter_add", "real", "imag", "conj", "conj_physical"),
            *("positive", "resolve_conj", "transpose", "squeeze", "unsqueeze", "index_put"),
            *("to_device", "complex", "flatten", "select", "narrow", "unfold", "diagonal"),
        ],
        linear,
    ),
    "matmul": product,
    "linear": affine,
    "constant_pad_nd": padded,
}
for _name in [name for name in RULES if name not in ("to_dtype",)]:
    _op = operator(_name)
    if _op.vjp_rule is None and _op.decomposition is not None or not _op.differentiable:
        del RULES[_name]  # decomposed, or without tangent
