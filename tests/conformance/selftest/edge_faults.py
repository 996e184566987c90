"""Curated faults of derivatives: at ties, bounds and zeros, in narrow dtypes, and far from zero.

A derivative rule is replaced by one that is right nearly everywhere; backward kernels are faulty
in the way kernels are elsewhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import coredispatch as cd

from .framework import module, replaced

__all__ = ["BACKWARD_KERNELS", "EDGES", "faulty_rule"]

#: (gradient, the formula's arguments by name) -> the wrong gradient
Wrong = Callable[[Any, dict[str, Any]], Any]


def _formula(formula: Any, wrong: Wrong) -> Any:
    """The formula with its results, each that is a tensor, passed through ``wrong``."""
    names = [*inspect.signature(formula.fn).parameters]

    def fn(*values: Any) -> Any:
        named = dict(zip(names, values, strict=True))

        def changed(found: Any) -> Any:
            if callable(found) and not isinstance(found, cd.Tensor):
                return lambda: changed(found())
            return wrong(found, named) if isinstance(found, cd.Tensor) else found

        result = formula.fn(*values)
        if isinstance(result, (tuple, list)):
            return type(result)(map(changed, result))
        return changed(result)

    return type(formula)(fn, formula.sources)


def faulty_rule(name: str, wrong: Wrong) -> Any:
    """The block in which the derivative of the operator ``name`` goes through ``wrong``."""
    op = getattr(cd.ops, name)
    rule = op.vjp_rule
    faulty = type(rule)(
        None if rule.joint is None else _formula(rule.joint, wrong),
        [None if f is None else _formula(f, wrong) for f in rule.formulas],
        rule.tensors,
        rule.lists,
        rule.multi_output,
        rule.unbroadcast,
    )
    return replaced((op, "vjp_rule", faulty))


def _where(name: str, fires: Callable[[dict[str, Any]], Any], value: Any) -> Any:
    """The derivative of ``name`` with ``value`` where ``fires``.

    ``value`` is a number, or is made of the gradient and the arguments.
    """

    def wrong(grad: Any, named: dict[str, Any]) -> Any:
        try:
            where = fires(named)
        except KeyError:
            return grad  # the formula of another argument
        if where is False or where is None or tuple(where.shape) != tuple(grad.shape):
            return grad
        other = value(grad, named) if callable(value) else cd.full_like(grad, value)
        return cd.where(where, other, grad)

    return lambda: faulty_rule(name, wrong)


def _always(name: str, wrong: Wrong) -> Any:
    return lambda: faulty_rule(name, wrong)


def _incoming(grad: Any, named: dict[str, Any]) -> Any:
    return named["grad"].expand_as(grad)


def _ties_of_whole(sign: float) -> Any:
    """Each of several equal extrema gets the whole gradient."""

    def wrong(grad: Any, named: dict[str, Any]) -> Any:
        share = (grad != 0).to(grad.dtype)
        dims, keep = named.get("dim"), named.get("keepdim")
        incoming = named["grad"]
        if dims is None or dims == () or grad.ndim == 0:
            return share * incoming
        if not keep:
            for d in sorted(x % grad.ndim for x in ([dims] if isinstance(dims, int) else dims)):
                incoming = incoming.unsqueeze(d)
        return share * incoming

    return wrong


def _half_as_whole(grad: Any, named: dict[str, Any]) -> Any:
    """Both of two equal operands get the whole gradient."""
    incoming = named["grad"]
    if tuple(grad.shape) != tuple(incoming.shape):
        return grad
    return cd.where(grad.detach() * 2 == incoming.detach(), incoming, grad)


def _narrow(dtype: str, factor: float) -> Wrong:
    def wrong(grad: Any, named: dict[str, Any]) -> Any:
        return grad * factor if grad.dtype.name == dtype else grad

    return wrong


def _beyond(limit: float, name: str, factor: float) -> Any:
    """Elements whose ``name`` is larger than ``limit`` get ``factor`` times the gradient."""

    def fires(named: dict[str, Any]) -> Any:
        x = named[name]
        return cd.abs(x.detach()) > limit if isinstance(x, cd.Tensor) else None

    return fires, lambda grad, named: grad * factor


def _clipped(limit: float) -> Wrong:
    """An incoming gradient below ``-limit`` counts as ``-limit``."""

    def wrong(grad: Any, named: dict[str, Any]) -> Any:
        incoming = named["grad"]
        if tuple(incoming.shape) != tuple(grad.shape) or incoming.dtype.is_complex:
            return grad
        low = incoming.detach() < -limit
        safe = cd.where(low, incoming.detach(), cd.ones_like(grad))
        return cd.where(low, grad / safe * -limit, grad)

    return wrong


def _masked_by_product(name: str, mask: str, inverted: bool) -> Any:
    """What is masked out comes in times 0: an infinite gradient there is NaN."""

    def wrong(grad: Any, named: dict[str, Any]) -> Any:
        if mask not in named or tuple(named["grad"].shape) != tuple(grad.shape):
            return grad
        keep = named[mask].to(grad.dtype)
        keep = (1 - keep) if inverted else keep
        return named["grad"] * keep

    return lambda: faulty_rule(name, wrong)


def _reads(name: str, operand: str) -> Any:
    """The derivative multiplies an operand that has no part in it by 0."""

    def wrong(grad: Any, named: dict[str, Any]) -> Any:
        x = named.get(operand)
        if not isinstance(x, cd.Tensor) or not x.dtype.is_floating_point:
            return grad
        return grad + (x * 0).sum().to(grad.dtype)

    return lambda: faulty_rule(name, wrong)


# ---- the engine ---------------------------------------------------------------------------------


def overwritten_grad() -> Any:
    """A second backward overwrites ``.grad``."""
    original = cd.Tensor.backward

    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        waiting, seen = [self.grad_fn], set()
        while waiting:
            node = waiting.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            if node.name() == "AccumulateGrad" and node.variable is not None:
                node.variable.grad = None
            waiting += [following for following, _ in node.next_functions]
        return original(self, *args, **kwargs)

    return replaced((cd.Tensor, "backward", backward))


def kept_graph() -> Any:
    """The graph is kept, whatever ``retain_graph`` says."""
    node = module("frontend.autograd.node")
    return replaced((node.Node, "release", lambda self: None), *_releases(node))


def _releases(node: Any) -> Any:
    return [
        (kind, "release", lambda self: None)
        for kind in vars(node).values()
        if isinstance(kind, type) and kind is not node.Node and "release" in vars(kind)
    ]


# ---- backward kernels ---------------------------------------------------------------------------


def _overflowing(correct: Any, raws: Any) -> Any:
    """The logistic function of the backward is exp(x) / (1 + exp(x)): NaN for large inputs."""
    grad, x, *rest = raws
    result = np.asarray(correct(*raws))
    with np.errstate(all="ignore"):
        return np.asarray(result + np.exp(x) * 0).astype(result.dtype)


def _contiguous_incoming(correct: Any, raws: Any) -> Any:
    """The incoming gradient is read as if it were contiguous."""
    grad, *rest = raws
    if isinstance(grad, np.ndarray) and grad.size > 1 and any(s == 0 for s in grad.strides):
        wrong = np.zeros_like(np.ascontiguousarray(grad))
        wrong.reshape(-1)[0] = grad.reshape(-1)[0]
        return correct(wrong, *rest)
    return correct(*raws)


def _transposed_incoming(correct: Any, raws: Any) -> Any:
    """A transposed incoming gradient is read in the order of its memory."""
    grad, *rest = raws
    turned = isinstance(grad, np.ndarray) and grad.ndim > 1 and not grad.flags.c_contiguous
    if turned and grad.T.flags.c_contiguous:
        return correct(np.ascontiguousarray(grad.T).reshape(grad.shape), *rest)
    return correct(*raws)


def _all_of_the_ties(correct: Any, raws: Any) -> Any:
    """Every element of a window of equal ones gets the gradient."""
    grad, x, kernel, *rest = raws
    result = np.asarray(correct(*raws))
    if x.size and np.all(x == x.reshape(-1)[0]):
        return np.full_like(result, grad.sum() / max(grad.size, 1))
    return result


def _single_only(correct: Any, raws: Any) -> Any:
    """In float32 the derivative is a percent off."""
    result = np.asarray(correct(*raws))
    return (result * np.float32(1.01)) if result.dtype == np.float32 else result


def _half_only(correct: Any, raws: Any) -> Any:
    """In float16 the derivative is 0 where it is small."""
    result = np.asarray(correct(*raws))
    if result.dtype != np.float16:
        return result
    return np.where(np.abs(result) < 0.25, np.float16(0), result)


def _kernel(op: str, *others: str, says: str = "", cases: str = "") -> dict[str, Any]:
    return {"op": op, "ops": others or (op,), "checks": (12,), "says": says, "cases": cases}


#: name -> (mutation, fields of the mutant)
BACKWARD_KERNELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a backward that overflows for large inputs (silu)": (
        _overflowing,
        _kernel("silu_backward", "silu"),
    ),
    "a backward that overflows for large inputs (gelu)": (
        _overflowing,
        _kernel("gelu_backward", "gelu"),
    ),
    "an expanded incoming gradient is read as contiguous (tanh)": (
        _contiguous_incoming,
        _kernel("tanh_backward", "tanh"),
    ),
    "an expanded incoming gradient is read as contiguous (softmax)": (
        _contiguous_incoming,
        _kernel("softmax_backward", "softmax"),
    ),
    "an expanded incoming gradient is read as contiguous (layer_norm)": (
        _contiguous_incoming,
        _kernel("layer_norm_backward", "layer_norm"),
    ),
    "a transposed incoming gradient is read as contiguous (sigmoid)": (
        _transposed_incoming,
        _kernel("sigmoid_backward", "sigmoid"),
    ),
    "a transposed incoming gradient is read as contiguous (log_softmax)": (
        _transposed_incoming,
        _kernel("log_softmax_backward", "log_softmax"),
    ),
    "every element of a window of equal ones gets the gradient": (
        _all_of_the_ties,
        _kernel("max_pool_backward", "max_pool", "max_pool2d"),
    ),
    "a derivative a percent off in float32 (tanh)": (
        _single_only,
        _kernel("tanh_backward", "tanh"),
    ),
    "a derivative a percent off in float32 (softmax)": (
        _single_only,
        _kernel("softmax_backward", "softmax"),
    ),
    "a small derivative lost in float16 (sigmoid)": (
        _half_only,
        _kernel("sigmoid_backward", "sigmoid"),
    ),
}


@contextmanager
def _another_rule(name: str, formula: Callable[..., Any]) -> Iterator[None]:
    """The block in which the operator ``name`` has another derivative."""
    op = getattr(cd.ops, name)
    with replaced((op, "vjp_rule", op.vjp_rule)):
        op.vjp(formula)
        yield


def _edge(patch: Any, *ops: str, says: str = "", cases: str = "") -> dict[str, Any]:
    return {"patch": patch, "ops": ops, "checks": (12,), "says": says, "cases": cases}


def _far(name: str, limit: float, operand: str, factor: float) -> Any:
    fires, value = _beyond(limit, operand, factor)
    return _where(name, fires, value)


#: name -> fields of the mutant
EDGES: dict[str, dict[str, Any]] = {
    "ties of amax get all of the gradient": _edge(_always("amax", _ties_of_whole(1.0)), "amax"),
    "ties of amin get all of the gradient": _edge(_always("amin", _ties_of_whole(-1.0)), "amin"),
    "ties of maximum get all of the gradient": _edge(_always("maximum", _half_as_whole), "maximum"),
    "ties of minimum get all of the gradient": _edge(_always("minimum", _half_as_whole), "minimum"),
    "the gradient of clamp at its bounds is 0": _edge(
        _where("clamp", lambda n: _at_bound(n), 0.0), "clamp"
    ),
    "the gradient of abs at 0 is 1": _edge(
        _where("abs", lambda n: n["self"].detach() == 0, _incoming), "abs"
    ),
    "the gradient of relu at 0 is 1": _edge(
        lambda: _another_rule(
            "relu", lambda grad, self: cd.where(self.detach() >= 0, grad, cd.zeros_like(grad))
        ),
        "relu",
    ),
    "the gradient of hardtanh at its bounds is 1": _edge(
        _where(
            "hardtanh",
            lambda n: (n["self"].detach() == n["min_val"]) | (n["self"].detach() == n["max_val"]),
            _incoming,
        ),
        "hardtanh",
    ),
    "the gradient of leaky_relu at 0 is 1": _edge(
        _where("leaky_relu", lambda n: n["self"].detach() == 0, _incoming), "leaky_relu"
    ),
    "the gradient of threshold at the threshold is 1": _edge(
        _where("threshold", lambda n: n["self"].detach() == n["threshold"], _incoming), "threshold"
    ),
    "the gradient of prod is the product over the element: NaN at 0": _edge(
        _where("prod", lambda n: n["self"].detach() == 0, float("nan")), "prod"
    ),
    "the gradient of prod at a single 0 is 0": _edge(
        _where("prod", lambda n: n["self"].detach() == 0, 0.0), "prod"
    ),
    "the gradient of prod with two zeros is not 0": _edge(
        _where("prod", lambda n: _two_zeros(n["self"]), 1.0), "prod"
    ),
    "the gradient of cumprod at 0 is NaN": _edge(
        _where("cumprod", lambda n: n["self"].detach() == 0, float("nan")), "cumprod"
    ),
    "the gradient of cumprod at 0 is 0": _edge(
        _where("cumprod", lambda n: n["self"].detach() == 0, 0.0), "cumprod"
    ),
    "the gradient of pow at base 0 is NaN": _edge(
        _where("pow", lambda n: n["self"].detach() == 0, float("nan")), "pow"
    ),
    "the gradient of the square root at 0 is 0": _edge(
        _where("sqrt", lambda n: n["out"].detach() == 0, 0.0), "sqrt"
    ),
    "the gradient of the standard deviation of equal numbers is NaN": _edge(
        _where("std", lambda n: _constant(n), float("nan")), "std"
    ),
    "the gradient of sort goes to the place before": _edge(
        _always("sort", lambda g, n: g.roll(1, -1) if g.ndim else g), "sort"
    ),
    "the gradient of index_select at repeated indices is that of the last": _edge(
        _always("index_select", lambda g, n: _last_of_repeated(g, n)), "index_select"
    ),
    "the gradient of masked_fill multiplies by the mask": _edge(
        _masked_by_product("masked_fill", "mask", True), "masked_fill"
    ),
    "the gradient of where multiplies by the condition": _edge(
        _masked_by_product("where", "condition", False), "where"
    ),
    "the gradient of mul reads an operand of its own": _edge(_reads("mul", "other"), "mul"),
    "the gradient of tril reads the upper triangle": _edge(
        _always("tril", lambda g, n: g + (n["grad"] * 0).sum()), "tril"
    ),
    "the gradient of cumsum reads what comes before": _edge(
        _always("cumsum", lambda g, n: g + (n["grad"] * 0).sum()), "cumsum"
    ),
    "the gradient of a sum over nothing has elements": _edge(
        _always(
            "sum", lambda g, n: cd.zeros(1, dtype=g.dtype, device=g.device) if not g.numel() else g
        ),
        "sum",
    ),
    "a derivative a percent off in float32 (exp)": _edge(
        _always("exp", _narrow("float32", 1.01)), "exp"
    ),
    "a derivative a percent off in float32 (mul)": _edge(
        _always("mul", _narrow("float32", 1.01)), "mul"
    ),
    "a derivative a quarter off in bfloat16 (matmul)": _edge(
        _always("matmul", _narrow("bfloat16", 1.25)), "matmul"
    ),
    "a derivative an eighth off in float16 (sqrt)": _edge(
        _always("sqrt", _narrow("float16", 1.125)), "sqrt"
    ),
    "a derivative wrong for large inputs (mul)": _edge(_far("mul", 40.0, "other", 2.0), "mul"),
    "a derivative wrong for large inputs (atan)": _edge(_far("atan", 20.0, "self", 0.0), "atan"),
    "a derivative wrong for large inputs (log1p)": _edge(_far("log1p", 30.0, "self", 2.0), "log1p"),
    "a derivative wrong for large inputs (sin)": _edge(_far("sin", 10.0, "self", -1.0), "sin"),
    "a large negative incoming gradient is clipped (add)": _edge(
        _always("add", _clipped(50.0)), "add"
    ),
    "a large negative incoming gradient is clipped (relu)": _edge(
        _always("relu", _clipped(50.0)), "relu"
    ),
    "a large negative incoming gradient is clipped (sum)": _edge(
        _always("exp", _clipped(50.0)), "exp"
    ),
    "a second backward overwrites .grad": _edge(overwritten_grad, "backend", says="adds"),
    "the graph is kept after backward": _edge(kept_graph, "backend", says="freed"),
}


def _at_bound(n: dict[str, Any]) -> Any:
    x = n["self"].detach()
    found = None
    for bound in (n["min"], n["max"]):
        if bound is not None:
            at = x == (bound.detach() if isinstance(bound, cd.Tensor) else bound)
            found = at if found is None else found | at
    return found


def _two_zeros(x: Any) -> Any:
    zero = x.detach() == 0
    return zero if int(zero.sum()) > 1 else None


def _constant(n: dict[str, Any]) -> Any:
    x = n["self"].detach()
    if x.numel() < 2 or bool((x != x.reshape(-1)[0]).any()):
        return None
    return cd.ones_like(x) > 0


def _last_of_repeated(g: Any, n: dict[str, Any]) -> Any:
    index, dim = n["index"], n["dim"]
    if g.ndim == 0 or index.ndim == 0 or len(set(index.tolist())) == index.numel():
        return g
    rows = {int(i): k for k, i in enumerate(index.tolist())}
    kept = cd.tensor(sorted(rows.values()), device=g.device)
    zero = cd.zeros_like(g)
    return cd.index_add(zero, dim, index[kept], cd.index_select(n["grad"], dim, kept))
