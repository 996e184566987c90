"""Generated mutants of derivatives: wrong in one dtype, at one place, or for one incoming gradient.

The derivative rule of an operator is replaced by one that is right nearly everywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import samples as sampling

from ..subject import OpMetadata, Subject
from .edge_faults import faulty_rule
from .mutants import Mutant, drawn

__all__ = ["OPERATORS", "generate_edges"]

PER_OP = 1
#: operators whose derivatives go wrong unless others are asked for
OPERATORS = (
    "add", "sub", "mul", "div", "pow", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sigmoid",
    "tanh", "gelu", "silu", "relu", "leaky_relu", "softplus", "maximum", "minimum", "clamp", "abs",
    "sum", "mean", "amax", "prod", "cumsum", "cumprod", "var", "std", "logsumexp", "softmax",
    "log_softmax", "layer_norm", "matmul", "linear", "convolution", "max_pool", "avg_pool",
    "gather", "index_select", "where", "cat", "permute", "expand", "mse_loss", "tril", "sort",
    "atan2", "hypot", "lerp", "addcmul", "erf", "sin", "square", "flip", "stack", "masked_fill",
    "scatter_add", "group_norm", "linalg_inv",
)  # fmt: skip
#: (gradient, the formula's arguments by name) -> the wrong gradient
Wrong = Callable[[Any, dict[str, Any]], Any]


def _counted(mutant: Mutant, wrong: Wrong) -> Wrong:
    """The fault, with a count of the gradients that it was asked for, and of those it changed."""

    def counted(grad: Any, named: dict[str, Any]) -> Any:
        found = wrong(grad, named)
        if found is not grad:
            mutant.met = (mutant.met or 0) + 1
            mutant.fired += bool((found.detach() != grad.detach()).any())
        return found

    return counted


def _in(dtype: str, factor: float) -> Wrong:
    return lambda grad, named: grad * factor if grad.dtype.name == dtype else grad


def _where(test: Callable[[Any, dict[str, Any]], Any]) -> Wrong:
    """The gradient doubled and one more at the elements of ``test``; None where it says nothing."""

    def wrong(grad: Any, named: dict[str, Any]) -> Any:
        if grad.dtype.is_complex or not grad.dtype.is_floating_point:
            return grad
        with cd.no_grad():
            where = test(grad, named)
        if where is None or tuple(where.shape) != tuple(grad.shape) or not bool(where.any()):
            return grad
        return cd.where(where, grad * 2 + 1, grad)

    return wrong


def _operands(grad: Any, named: dict[str, Any]) -> list[Any]:
    """The floating operands that have the gradient's shape."""
    return [
        x.detach()
        for name, x in named.items()
        if name not in ("grad", "out")
        and isinstance(x, cd.Tensor)
        and x.dtype.is_floating_point
        and not x.dtype.is_complex
        and tuple(x.shape) == tuple(grad.shape)
    ]


def _first(test: Callable[[Any], Any]) -> Callable[[Any, dict[str, Any]], Any]:
    """A test of the first operand."""

    def where(grad: Any, named: dict[str, Any]) -> Any:
        found = _operands(grad, named)
        return test(found[0]) if found else None

    return where


def _equal(grad: Any, named: dict[str, Any]) -> Any:
    found = _operands(grad, named)
    return found[0] == found[1] if len(found) > 1 else None


def _incoming(test: Callable[[Any], Any]) -> Callable[[Any, dict[str, Any]], Any]:
    """A test of the incoming gradient: of each element, or of all where the shape is another."""

    def where(grad: Any, named: dict[str, Any]) -> Any:
        incoming = named.get("grad")
        if not isinstance(incoming, cd.Tensor):
            return None
        fires = test(incoming.detach())
        if tuple(fires.shape) == tuple(grad.shape):
            return fires
        return cd.ones_like(grad) > 0 if bool(fires.any()) else None

    return where


def _limited(grad: Any, named: dict[str, Any]) -> Any:
    """Gradients beyond 300 are cut."""
    if grad.dtype.is_complex or not bool((cd.abs(grad.detach()) > 300).any()):
        return grad
    return cd.clamp(grad, -300.0, 300.0)


def _largest(count: int) -> Wrong:
    """Gradients of more than ``count`` elements are a tenth off."""
    return lambda grad, named: grad * 1.1 if grad.numel() > count else grad


def _pairs(op: Any) -> bool:
    """Whether samples have two floating operands of one shape."""
    for sample in op.samples(sampling.Make(np.float64, values=op.values)):
        arrays = [a for a in sample.args if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
        if len(arrays) > 1 and arrays[0].shape == arrays[1].shape and arrays[0].size:
            return True
    return False


def _reads_operands(op: Any) -> bool:
    """Whether the derivative's formulas see the operands, as faults at their values do."""
    rule = op.vjp_rule
    formulas = [rule.joint] if rule.joint is not None else [f for f in rule.formulas if f]
    given = {name for f in formulas for name in inspect.signature(f.fn).parameters}
    operands = [p.name for p in op.schema.params if p.kind == "Tensor" and p.name != "index"]
    return any(name in given for name in operands)


def _faults(metadata: OpMetadata) -> Iterator[tuple[str, Wrong]]:
    op = metadata.op
    for dtype, factor in (("float32", 1.01), ("float16", 1.125), ("bfloat16", 1.25)):
        if dtype in metadata.dtypes:
            yield f"off in {dtype}", _in(dtype, factor)
    yield "beyond 300 it is cut", _limited
    yield "a tenth off for more than 200 elements", _largest(200)
    if not metadata.elementwise and op.name not in ("gelu", "softplus", "relu", "leaky_relu"):
        return
    if op.view:
        return
    if not op.vjp_rule.multi_output:
        yield "wrong where 0 comes in", _where(_incoming(lambda g: g == 0))
        yield "wrong where much comes in", _where(_incoming(lambda g: cd.abs(g) > 1000))
        yield "wrong where much less than 0 comes in", _where(_incoming(lambda g: g < -1000))
    if not _reads_operands(op):
        return
    if op.values is None:
        yield "wrong for inputs beyond 40", _where(_first(lambda x: cd.abs(x) > 40))
        yield "wrong for inputs below -40", _where(_first(lambda x: x < -40))
        yield "wrong at 0", _where(_first(lambda x: x == 0))
        yield "wrong at tiny inputs", _where(_first(lambda x: cd.abs(x) < 1e-5))
    yield "wrong at 1", _where(_first(lambda x: x == 1))
    yield "wrong at whole numbers", _where(_first(lambda x: x == cd.round(x)))
    if _pairs(op):
        yield "wrong where operands are equal", _where(_equal)


def generate_edges(subject: Subject, name: str, count: int = PER_OP) -> list[Mutant]:
    """``count`` mutants of one operator's derivative, or all of them for -1."""
    metadata = subject.metadata(name)
    if metadata.op.samples is None or metadata.op.vjp_rule is None or metadata.op.mutates:
        return []
    made = []
    for what, wrong in drawn(name, [*_faults(metadata)], count):
        mutant = Mutant(f"{name}: the derivative, {what}", "", ops=(name,), checks=(12,), met=0)
        counted = _counted(mutant, wrong)
        mutant.patch = lambda n=name, w=counted: faulty_rule(n, w)
        mutant.details.update(trigger=what, effect="edges")
        made.append(mutant)
    return made
