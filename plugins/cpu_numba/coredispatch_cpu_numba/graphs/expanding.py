"""Operators as the pointwise operators and reductions that fused loops are made of.

Where eager calls one kernel of its own (a softmax, a normalization, a loss, an optimizer), a
compiled graph spells it out: then it is fused with what stands around it. The formulas are those of
the kernels in ``loops/``.
"""

from __future__ import annotations

import math
import operator as py
from collections.abc import Callable
from typing import Any

from coredispatch.plugin import Device, operator, passes
from coredispatch.plugin import graph as graphs

__all__ = ["EXPANSIONS", "expand"]


class _Rejected(Exception):
    """The call is left as it is."""


class _Writer:
    """Writes calls into a graph: ``b.add(x, 1)`` is a new node."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self._known: dict[Any, Any] = {}

    def writes_to(self, node: Any) -> bool:
        """Whether the graph writes to a value."""
        aliases = passes.aliasing.Aliases(self.graph)
        return aliases.of(node) in aliases.written

    def once(self, write: Callable[..., Any], *args: Any) -> Any:
        """What ``write(self, *args)`` gives; one node for all who ask for the same of inputs."""
        key = (write, *args)
        if key not in self._known:
            self._known[key] = write(self, *args)
        return self._known[key]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = operator(name)

        def write(*args: Any, **named: Any) -> Any:
            rest = op.schema.params[len(args) :]
            complete = (*args, *(named.get(p.name, p.default) for p in rest))
            node = graphs.call(self.graph, op, complete)
            if op.name == "arange":  # known without an argument of which something is known
                node.meta["value"] = graphs.info_of(op(*complete[:3], device=complete[4]))
            return node

        return write

    def number(self, function: Any, *args: Any) -> Any:
        """A number computed from numbers, some of which may be known only when it runs."""
        if not any(hasattr(a, "graph") for a in args):
            return function(*args)
        return self.graph.call_function(function, args)


def expand(graph: Any) -> Any:
    """A copy in which the operators of :data:`EXPANSIONS` are spelled out, where they can be.

    What is known of values must be there (:func:`coredispatch.graph.passes.inference`).
    """
    made = graph.copy()
    writer = _Writer(made)
    for node in made.nodes:
        node.meta.pop("aliases", None)  # was told of the layouts that eager gave
        rule = EXPANSIONS.get(getattr(node.target, "name", ""))
        if node.op != "call_function" or rule is None:
            continue
        args = graphs.bound_arguments(node.target, node)
        if args is None or _is_open(node.target, args):
            continue
        with made.inserting_before(node):
            try:
                result = rule(writer, *args)
            except _Rejected:
                continue
        if result is None:  # writes
            made.erase_node(node)
        elif isinstance(result, tuple):
            _spread(made, node, result)
        elif result is not node:
            node.replace_all_uses_with(result)
            made.erase_node(node)
    made.eliminate_dead_code()
    return made


def _is_open(op: Any, args: Any) -> bool:
    """Whether the program computes a dimension, a size or an index that the formula depends on.

    The number of an optimizer's step is one to compute with.
    """
    return any(
        param.name != "step" and param.kind not in _VALUES and _holds_node(argument)
        for param, argument in zip(op.schema.params, args, strict=True)
    )


#: kinds of parameters whose values are computed with
_VALUES = ("Tensor", "list[Tensor]", "Scalar", "float")


def _holds_node(argument: Any) -> bool:
    if isinstance(argument, (tuple, list)):
        return any(map(_holds_node, argument))
    return hasattr(argument, "graph")


def _spread(made: Any, node: Any, results: tuple[Any, ...]) -> None:
    """Put several results in the place of the elements of a tuple."""
    for user in list(node.users):
        if user.target is py.getitem and isinstance(user.args[1], int):
            user.replace_all_uses_with(results[user.args[1]])
            made.erase_node(user)
        else:
            user.replace_input_with(node, results)
    made.erase_node(node)


def _shape(node: Any) -> tuple[int, ...]:
    info = node.meta.get("value")
    if not hasattr(info, "dtype"):
        raise _Rejected
    shape: tuple[int, ...] = tuple(int(n) for n in info.shape)
    return shape


def _floating(*nodes: Any) -> None:
    for node in nodes:
        _shape(node)
        if str(node.meta["value"].dtype).rpartition(".")[2] not in ("float32", "float64"):
            raise _Rejected


def _last(node: Any, dim: int) -> None:
    shape = _shape(node)
    if dim % max(len(shape), 1) != len(shape) - 1 or not shape[-1]:  # nothing has no largest
        raise _Rejected


# -- rows ------------------------------------------------------------------------------------------


def _softmax(b: Any, x: Any, dim: int, dtype: Any) -> Any:
    _floating(x)
    _last(x, dim)
    if dtype is not None:
        raise _Rejected
    e = b.exp(b.sub(x, b.amax(x, [-1], True)))
    return b.mul(e, b.reciprocal(b.sum(e, [-1], True)))  # which is 1 at least


def _softmax_backward(b: Any, grad: Any, out: Any, dim: int) -> Any:
    _floating(grad, out)
    _last(out, dim)
    return b.mul(out, b.sub(grad, b.sum(b.mul(grad, out), [-1], True)))


def _log_softmax(b: Any, x: Any, dim: int, dtype: Any) -> Any:
    _floating(x)
    _last(x, dim)
    if dtype is not None:
        raise _Rejected
    shifted = b.sub(x, b.amax(x, [-1], True))
    return b.sub(shifted, b.log(b.sum(b.exp(shifted), [-1], True)))


def _log_softmax_backward(b: Any, grad: Any, out: Any, dim: int) -> Any:
    _floating(grad, out)
    _last(out, dim)
    return b.sub(grad, b.mul(b.exp(out), b.sum(grad, [-1], True)))


def _dims(x: Any, normalized_shape: Any) -> list[int]:
    _floating(x)
    return list(range(-len(normalized_shape), 0))


def _layer_norm(b: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    dims = _dims(x, shape)
    centered = b.sub(x, b.mean(x, dims, True))
    scale = b.rsqrt(b.add(b.mean(b.mul(centered, centered), dims, True), eps))
    y = b.mul(centered, scale)
    y = y if weight is None else b.mul(y, weight)
    return y if bias is None else b.add(y, bias)


def _layer_norm_backward(b: Any, grad: Any, x: Any, shape: Any, weight: Any, eps: float) -> Any:
    dims = _dims(x, shape)
    centered = b.sub(x, b.mean(x, dims, True))
    scale = b.rsqrt(b.add(b.mean(b.mul(centered, centered), dims, True), eps))
    normal = b.mul(centered, scale)
    g = grad if weight is None else b.mul(grad, weight)
    along = b.mul(normal, b.mean(b.mul(g, normal), dims, True))
    dx = b.mul(scale, b.sub(b.sub(g, b.mean(g, dims, True)), along))
    return dx, _over_rows(b, b.mul(grad, normal), shape), _over_rows(b, grad, shape)


def _rms_scale(b: Any, x: Any, dims: list[int], eps: float | None) -> Any:
    if eps is None:
        double = str(x.meta["value"].dtype).endswith("float64")
        eps = 2.0**-52 if double else 2.0**-23
    return b.rsqrt(b.add(b.mean(b.mul(x, x), dims, True), eps))


def _rms_norm(b: Any, x: Any, shape: Any, weight: Any, eps: float | None) -> Any:
    y = b.mul(x, _rms_scale(b, x, _dims(x, shape), eps))
    return y if weight is None else b.mul(y, weight)


def _rms_norm_backward(b: Any, grad: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
    dims = _dims(x, shape)
    scale = _rms_scale(b, x, dims, eps)
    normal = b.mul(x, scale)
    g = grad if weight is None else b.mul(grad, weight)
    dx = b.mul(scale, b.sub(g, b.mul(normal, b.mean(b.mul(g, normal), dims, True))))
    return dx, _over_rows(b, b.mul(grad, normal), shape)


def _over_rows(b: Any, x: Any, shape: Any) -> Any:
    rows = len(_shape(x)) - len(shape)
    return b.sum(x, list(range(rows)), False) if rows else x


# -- losses ----------------------------------------------------------------------------------------


def _classes(
    b: Any, x: Any, target: Any, weight: Any, ignored: int, smoothing: float
) -> tuple[Any, Any]:
    """The target as a column, and where a class is the target.

    That the target is a class is checked before anything runs, so it has to come from outside.
    """
    _floating(x)
    if weight is not None or smoothing or len(_shape(x)) != 2 or len(_shape(target)) != 1:
        raise _Rejected
    if str(target.meta["value"].dtype).rpartition(".")[2] != "int64":
        raise _Rejected
    if target.op != "placeholder" or b.writes_to(target):
        raise _Rejected
    check = (target.name, _shape(x)[1], ignored)
    b.graph.meta["classes"] = {**b.graph.meta.get("classes", {}), check: None}
    chosen: tuple[Any, Any] = b.once(_chosen, target, _shape(x)[1])
    return chosen


def _chosen(b: Any, target: Any, classes: int) -> tuple[Any, Any]:
    column = b.unsqueeze(target, 1)
    return column, b.eq(b.arange(0, classes, device=Device("cpu")), column)


def _cross_entropy(
    b: Any, x: Any, target: Any, weight: Any, ignored: int, reduction: str, smoothing: float
) -> Any:
    column, chosen = _classes(b, x, target, weight, ignored, smoothing)
    largest = b.amax(x, [1], True)
    shifted = b.sub(x, largest)
    total = b.log(b.sum(b.exp(shifted), [1], True))
    picked = b.sum(b.where(chosen, shifted, 0.0), [1], True)
    loss = b.where(b.ne(column, ignored), b.sub(total, picked), 0.0)
    if reduction == "none":
        return b.reshape(loss, _shape(target))
    summed = b.sum(loss)
    if reduction == "sum":
        return summed
    return b.div(summed, b.once(_counted, target, ignored, x.meta["value"].dtype))


def _counted(b: Any, target: Any, ignored: int, dtype: Any) -> Any:
    return b.sum(b.to_dtype(b.ne(target, ignored), dtype))


def _cross_entropy_backward(
    b: Any,
    grad: Any,
    x: Any,
    target: Any,
    weight: Any,
    ignored: int,
    reduction: str,
    smoothing: float,
) -> Any:
    column, chosen = _classes(b, x, target, weight, ignored, smoothing)
    e = b.exp(b.sub(x, b.amax(x, [1], True)))
    share = b.mul(e, b.reciprocal(b.sum(e, [1], True)))
    if reduction == "none":
        grad = b.unsqueeze(grad, 1)
    elif reduction == "mean":
        grad = b.div(grad, b.once(_counted, target, ignored, x.meta["value"].dtype))
    slope = b.where(chosen, b.sub(share, 1.0), share)
    return b.where(b.ne(column, ignored), b.mul(slope, grad), 0.0)


def _mse_loss(b: Any, x: Any, target: Any, reduction: str) -> Any:
    _floating(x, target)
    d = b.sub(x, target)
    d = b.mul(d, d)
    return d if reduction == "none" else b.mean(d) if reduction == "mean" else b.sum(d)


# -- products --------------------------------------------------------------------------------------


def _linear_weight_grad(b: Any, grad: Any, x: Any) -> Any:
    """Of a single row: products of two numbers, which the optimizer's loop can compute."""
    _floating(grad, x)
    if len(_shape(x)) != 2 or _shape(x)[0] != 1 or _shape(grad)[0] != 1:
        raise _Rejected
    return b.mul(b.t(grad), x)


def _linear(b: Any, x: Any, weight: Any, bias: Any) -> Any:
    if bias is None or len(_shape(x)) < 2:
        raise _Rejected
    return b.add(b.linear(x, weight, None), bias)


def _addmm(b: Any, x: Any, one: Any, two: Any, beta: Any, alpha: Any) -> Any:
    _floating(x, one, two)
    y = b.matmul(one, two)
    y = y if alpha == 1 else b.mul(y, alpha)
    return b.add(y, x if beta == 1 else b.mul(x, beta))


def _bmm(b: Any, one: Any, two: Any) -> Any:
    return b.matmul(one, two)


#: so many scores, and the kernel of attention costs less than products and loops do
_SCORES = 4096


def _weights(
    b: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any, grouped: bool
) -> tuple[Any, Any]:
    """The weights of the keys, and the scale."""
    _floating(q, k, v)
    batch, length, width = _shape(q)[:-2], _shape(q)[-2], _shape(q)[-1]
    same = batch == _shape(k)[:-2] == _shape(v)[:-2]
    if grouped or not same or (causal and mask is not None) or hasattr(scale, "graph"):
        raise _Rejected
    if length * _shape(k)[-2] >= _SCORES:
        raise _Rejected
    scale = 1.0 / math.sqrt(width) if scale is None else scale
    scores = b.mul(b.matmul(q, b.transpose(k, -2, -1)), scale)
    if causal:
        cpu = Device("cpu")
        rows = b.unsqueeze(b.arange(0, length, device=cpu), 1)
        later = b.gt(b.unsqueeze(b.arange(0, _shape(k)[-2], device=cpu), 0), rows)
        scores = b.masked_fill(scores, later, -math.inf)
    elif mask is not None:
        if str(mask.meta["value"].dtype).endswith("bool"):
            scores = b.where(mask, scores, -math.inf)
        else:
            _floating(mask)
            scores = b.add(scores, mask)
    if mask is None:
        return _softmax(b, scores, -1, None), scale
    _last(scores, -1)
    largest = b.amax(scores, [-1], True)  # -inf for a query without any key, which gives 0
    e = b.exp(b.sub(scores, b.where(b.gt(largest, -math.inf), largest, 0.0)))
    total = b.sum(e, [-1], True)
    return b.mul(e, b.reciprocal(b.where(b.gt(total, 0.0), total, 1.0))), scale


def _attention(b: Any, q: Any, k: Any, v: Any, *options: Any) -> Any:
    return b.matmul(_weights(b, q, k, v, *options)[0], v)


def _scaled_dot_product_attention(
    b: Any, q: Any, k: Any, v: Any, mask: Any, dropout: Any, *options: Any
) -> Any:
    if dropout:
        raise _Rejected
    return _attention(b, q, k, v, mask, *options)


def _attention_backward(b: Any, grad: Any, q: Any, k: Any, v: Any, *options: Any) -> Any:
    _floating(grad)
    weights, scale = _weights(b, q, k, v, *options)
    slope = b.matmul(grad, b.transpose(v, -2, -1))
    slope = b.mul(_softmax_backward(b, slope, weights, -1), scale)
    of_k, of_v = (b.matmul(b.transpose(x, -2, -1), y) for x, y in ((slope, q), (weights, grad)))
    return b.matmul(slope, k), of_k, of_v


def _ones_like(b: Any, x: Any, *options: Any) -> Any:
    """The gradient of a loss: a constant, which does not wait for the loss."""
    if _shape(x) or any(option is not None for option in options):
        raise _Rejected
    return b.full((), 1, dtype=x.meta["value"].dtype, device=Device("cpu"))


def _sum(b: Any, x: Any, dims: Any, keepdim: bool, dtype: Any) -> Any:
    """Over the first and the last dimensions: first within rows, then over the rows."""
    _floating(x)
    ndim = len(_shape(x))
    dims = [dims] if isinstance(dims, int) else list(dims or range(ndim))
    if not ndim:
        raise _Rejected
    places = {dim % ndim for dim in dims}
    first = next(k for k in range(ndim + 1) if k not in places)
    last = [k for k in range(first, ndim) if k in places]
    if dtype is not None or not first or not last or last != list(range(ndim - len(last), ndim)):
        raise _Rejected
    return b.sum(b.sum(x, last, keepdim), list(range(first)), keepdim)


# -- optimizers ------------------------------------------------------------------------------------


def _signed(b: Any, grad: Any, maximize: bool) -> Any:
    return b.neg(grad) if maximize else grad


def _adam_step(
    b: Any, param: Any, grad: Any, first: Any, second: Any, largest: Any, step: Any, lr: Any,
    beta1: Any, beta2: Any, eps: Any, decay: Any, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    _floating(param, grad, first, second)
    if largest is not None or hasattr(decay, "graph"):
        raise _Rejected
    number = b.number
    rest1, rest2 = number(py.sub, 1.0, beta1), number(py.sub, 1.0, beta2)
    d, weight = _signed(b, grad, maximize), param
    if decay and decoupled:
        weight = b.mul(param, number(py.sub, 1.0, number(py.mul, lr, decay)))
    elif decay:
        d = b.add(d, b.mul(param, decay))
    mean = b.add(first, b.mul(b.sub(d, first), rest1))
    square = b.add(b.mul(second, beta2), b.mul(b.mul(d, d), rest2))
    bias1 = number(py.sub, 1.0, number(py.pow, beta1, step))
    bias2 = number(math.sqrt, number(py.sub, 1.0, number(py.pow, beta2, step)))
    root = b.mul(b.sqrt(square), number(py.truediv, 1.0, bias2))
    moved = b.mul(b.div(mean, b.add(root, eps)), number(py.truediv, lr, bias1))
    b.copy_(first, mean)
    b.copy_(second, square)
    b.copy_(param, b.sub(weight, moved))


def _sgd_step(
    b: Any, param: Any, grad: Any, buffer: Any, lr: Any, momentum: Any, dampening: Any, decay: Any,
    nesterov: bool, maximize: bool, first: Any,
) -> None:  # fmt: skip
    _floating(param, grad)
    if hasattr(first, "graph") or hasattr(decay, "graph"):
        raise _Rejected
    d = _signed(b, grad, maximize)
    if decay:
        d = b.add(d, b.mul(param, decay))
    if buffer is not None:
        if first:
            velocity = b.clone(d)
        else:
            velocity = b.add(b.mul(buffer, momentum), b.mul(d, b.number(py.sub, 1.0, dampening)))
        b.copy_(buffer, velocity)
        d = b.add(d, b.mul(velocity, momentum)) if nesterov else velocity
    b.copy_(param, b.sub(param, b.mul(d, lr)))


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "adam_step": _adam_step,
    "addmm": _addmm,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "bmm": _bmm,
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_backward,
    "layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    "linear": _linear,
    "linear_weight_grad": _linear_weight_grad,
    "log_softmax": _log_softmax,
    "log_softmax_backward": _log_softmax_backward,
    "mse_loss": _mse_loss,
    "ones_like": _ones_like,
    "rms_norm": _rms_norm,
    "scaled_dot_product_attention": _scaled_dot_product_attention,
    "sum": _sum,
    "rms_norm_backward": _rms_norm_backward,
    "sgd_step": _sgd_step,
    "softmax": _softmax,
    "softmax_backward": _softmax_backward,
}
