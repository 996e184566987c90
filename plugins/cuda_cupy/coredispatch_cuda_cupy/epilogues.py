"""Products with what follows them as one call of cuBLASLt, in compiled programs.

`linear` with relu or the gelu by tanh (which also gives its input where the backward pass reads
it), the gradient of that gelu with the product that makes it and the sum over rows that it is
followed by, and the gradients of a weight and a bias from one look at the gradient of the result.
relu by cuBLASLt may give 0 for NaN. A call that the library refuses computes what it stands for by
the operators themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

from coredispatch.plugin import from_raw, passes
from coredispatch.plugin import operator as operator_named
from coredispatch_cuda_cupy import cublaslt
from coredispatch_cuda_cupy.cuda.layout import dense
from coredispatch_cuda_cupy.cuda.products import Lines, Multiplier, linear_with
from coredispatch_cuda_cupy.spelling import complete

__all__ = ["merge"]

#: dtypes whose products have epilogues
_DTYPES = ("float32", "float16", "bfloat16")
#: elements that a leading dimension of the input of gelu is a multiple of
_UNIT = 8


def merge(graph: Any, cupy: Any) -> int:
    """Put one call in the place of each product with its epilogue; how many there are."""
    found = cublaslt.library(cupy)
    if found is None:
        return 0
    merger = _Merger(graph, Multiplier(cupy, found))
    made = 0
    for find in (merger.activation, merger.gelu_gradient, merger.weight_gradient):
        for node in list(graph.nodes):
            made += node.op == "call_function" and find(node)
    return made


def _name(node: Any) -> str:
    return str(getattr(getattr(node, "target", None), "name", ""))


def _info(node: Any) -> Any:
    """Shape and dtype of a tensor that cuBLASLt has epilogues for; None otherwise."""
    info = passes.inference.tensor_info(node) if hasattr(node, "graph") else None
    if info is None or str(info.dtype).rpartition(".")[2] not in _DTYPES:
        return None
    return info if all(type(n) is int for n in info.shape) and prod(info.shape) else None


class _Merger:
    """Finds products with an epilogue in a graph."""

    def __init__(self, graph: Any, multiplier: Multiplier) -> None:
        self.graph, self.multiplier = graph, multiplier

    def activation(self, node: Any) -> bool:
        """relu or gelu of a linear layer, whose own result nobody else reads or gelu gives too."""
        if _name(node) not in ("relu", "gelu"):
            return False
        linear, *how = complete(node)
        if _name(linear) != "linear" or _info(node) is None or how not in ([], ["tanh"]):
            return False
        input, weight, bias = complete(linear)
        shapes = [_info(x) for x in (input, weight, bias)]
        if any(shape is None or shape.dtype != _info(node).dtype for shape in shapes):
            return False
        only = len(linear.users) == 1
        outputs = [node] if only else [node, linear]
        if not only and (_name(node) == "relu" or _info(linear).shape[-1] % _UNIT):
            return False
        if len(shapes[1].shape) != 2:
            return False
        name = _name(node)

        def run(x: Any, w: Any, b: Any) -> Any:
            if only:
                out = linear_with(self.multiplier, x, w, b, name)
                return out if out is NotImplemented else (out,)
            return _gelu_and_input(self.multiplier, x, w, b)

        def eagerly(x: Any, w: Any, b: Any) -> Any:
            product = operator_named("linear")(x, w, b)
            activated = operator_named(name)(product, *how)
            return (activated,) if only else (activated, product)

        return self._replace(
            f"linear_{name}", run, eagerly, [input, weight, bias], outputs, [linear, node]
        )

    def gelu_gradient(self, node: Any) -> bool:
        """The gradient of gelu with the product whose only reader it is, and its sum over rows."""
        if _name(node) != "gelu_backward":
            return False
        product, before, how = complete(node)
        if _name(product) != "matmul" or how != "tanh" or len(product.users) > 1:
            return False
        grad, weight = complete(product)
        infos = [_info(x) for x in (node, grad, weight, before)]
        if any(info is None or info.dtype != infos[0].dtype for info in infos):
            return False
        own, of_grad, of_weight, of_input = (info.shape for info in infos)
        if len(of_weight) != 2 or len(of_grad) < 2 or own != of_input or own[-1] % _UNIT:
            return False
        total = self._sum_over_rows(node)
        outputs = [node] if total is None else [node, total]

        def run(grad: Any, weight: Any, before: Any) -> Any:
            return _gelu_gradient(self.multiplier, grad, weight, before, total is not None)

        def eagerly(grad: Any, weight: Any, before: Any) -> Any:
            product = operator_named("matmul")(grad, weight)
            found = operator_named("gelu_backward")(product, before, "tanh")
            return (found,) if total is None else (found, _rows_summed(found))

        gone = [product, *outputs]
        return self._replace(
            "matmul_gelu_backward", run, eagerly, [grad, weight, before], outputs, gone
        )

    def weight_gradient(self, node: Any) -> bool:
        """The gradient of a weight, with that of the bias."""
        if _name(node) != "linear_weight_grad":
            return False
        grad, input = complete(node)
        infos = [_info(x) for x in (node, grad, input)]
        if any(info is None or info.dtype != infos[0].dtype for info in infos):
            return False
        total = self._sum_over_rows(grad)
        if total is None:
            return False

        def run(grad: Any, input: Any) -> Any:
            return _weight_and_bias_gradients(self.multiplier, grad, input)

        def eagerly(grad: Any, input: Any) -> Any:
            return operator_named("linear_weight_grad")(grad, input), _rows_summed(grad)

        both = [node, total]
        return self._replace("linear_weight_and_bias_grad", run, eagerly, [grad, input], both, both)

    def _sum_over_rows(self, node: Any) -> Any:
        """The node that sums a tensor over all but its last dimension; None where none does."""
        if not hasattr(node, "users"):
            return None
        rank = len(_info(node).shape)
        for user in node.users:
            if _name(user) != "sum" or complete(user)[0] is not node or _info(user) is None:
                continue
            dims, keepdim, dtype = complete(user)[1:4]
            dims = [dims] if isinstance(dims, int) else list(dims or ())
            if sorted(d % rank for d in dims) == list(range(rank - 1)) and not keepdim:
                if dtype is None or dtype == _info(node).dtype:
                    return user
        return None

    def _replace(
        self,
        name: str,
        run: Callable[..., Any],
        eagerly: Callable[..., Any],
        inputs: list[Any],
        outputs: list[Any],
        gone: list[Any],
    ) -> bool:
        """One call in the place of nodes, where the first of its results is made.

        False where a result is read before all inputs are there, or something is written meanwhile.
        """
        order = {node: k for k, node in enumerate(self.graph.nodes)}
        first = min(outputs, key=order.__getitem__)
        last_input = max(inputs, key=order.__getitem__)
        place = max((first, last_input), key=order.__getitem__)
        users = [user for node in outputs for user in node.users if user not in gone]
        if any(order[user] < order[place] for user in users):
            return False
        places = [order[node] for node in (place, *gone)]
        between = list(self.graph.nodes)[min(places) : max(places)]
        if any(getattr(node.target, "mutates", False) for node in between):
            return False
        with self.graph.inserting_after(place):
            call = self.graph.call_function(_Call(name, run, eagerly), tuple(inputs))
        after = call
        for k, node in enumerate(outputs):
            with self.graph.inserting_after(after):
                after = self.graph.call_function(operator.getitem, (call, k))
            after.meta["value"] = node.meta["value"]
            node.replace_all_uses_with(after)
        for node in sorted(gone, key=order.__getitem__, reverse=True):
            if not node.users:
                self.graph.erase_node(node)
        return True


class _Call:
    """A product with an epilogue, called with the tensors it reads; it returns a tuple."""

    def __init__(self, name: str, run: Callable[..., Any], eagerly: Callable[..., Any]) -> None:
        self.__name__, self.run, self.eagerly = name, run, eagerly

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        raws = [value.raw for value in values]
        with raws[0].device:
            made = self.run(*raws)
        if made is NotImplemented:
            return tuple(self.eagerly(*values))
        return tuple([from_raw(raw, backend="cuda") for raw in made])


def _rows_summed(x: Any) -> Any:
    return operator_named("sum")(x, list(range(x.ndim - 1)), False)


def _as_rows(x: Any) -> Any:
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _laid_out(multiplier: Multiplier, a: Any, b: Any) -> tuple[Lines, Lines] | None:
    first, second = multiplier.many(a, ()), multiplier.many(b, ())
    return None if first is None or second is None else (first, second)


def _gelu_and_input(multiplier: Multiplier, x: Any, w: Any, b: Any) -> Any:
    """The gelu of a linear layer, and what it is taken of."""
    cupy, shape = multiplier.cupy, (*x.shape[:-1], w.shape[0])
    factors = _laid_out(multiplier, _as_rows(x), w.T)
    if factors is None:
        return NotImplemented
    out, before = cupy.empty(shape, x.dtype), cupy.empty(shape, x.dtype)
    given: dict[str, Any] = {"epilogue": "gelu_aux_bias", "bias": dense(cupy, b), "aux": before}
    return (out, before) if multiplier.multiply(*factors, out, **given) else NotImplemented


def _gelu_gradient(
    multiplier: Multiplier, grad: Any, weight: Any, before: Any, summed: bool
) -> Any:
    """``grad @ weight`` times the slope of gelu at ``before``; if asked for its sum over rows."""
    cupy = multiplier.cupy
    factors = _laid_out(multiplier, _as_rows(grad), weight)
    if factors is None:
        return NotImplemented
    out = cupy.empty(before.shape, before.dtype)
    total = cupy.empty(before.shape[-1:], before.dtype) if summed else None
    given: dict[str, Any] = {"epilogue": "dgelu_bgrad" if summed else "dgelu", "bias": total}
    if not multiplier.multiply(*factors, out, aux=dense(cupy, before), **given):
        return NotImplemented
    return (out, total) if summed else (out,)


def _weight_and_bias_gradients(multiplier: Multiplier, grad: Any, input: Any) -> Any:
    """``grad.T @ input`` over all rows, and the sum of ``grad`` over them."""
    cupy = multiplier.cupy
    factors = _laid_out(multiplier, _as_rows(grad).T, _as_rows(input))
    if factors is None:
        return NotImplemented
    out = cupy.empty((grad.shape[-1], input.shape[-1]), grad.dtype)
    total = cupy.empty(grad.shape[-1:], grad.dtype)
    taken = multiplier.multiply(*factors, out, epilogue="bgradb", bias=total)
    return (out, total) if taken else NotImplemented
