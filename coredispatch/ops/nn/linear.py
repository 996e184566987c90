"""Affine and bilinear maps."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import NUMBER, dot, promote
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError


def _linear_shape(input: Any, weight: Any, bias: Any) -> tuple[int, ...]:
    shape, features = tuple(input.shape), tuple(weight.shape)[-1:]
    if weight.ndim not in (1, 2) or not shape or shape[-1:] != features:
        raise ShapeError(
            f"an input of shape {shape} does not fit a weight of shape {tuple(weight.shape)}"
            + (
                f": it has {shape[-1]} features, {features[0]} are taken"
                if shape and features
                else ""
            ),
            fix="use a weight (out_features, in_features) and an input (*, in_features)",
        )
    out = tuple(weight.shape[:-1])
    if bias is not None and tuple(bias.shape) not in (out, ()):
        raise ShapeError(
            f"a bias of shape {tuple(bias.shape)} does not fit a weight of shape "
            f"{tuple(weight.shape)}",
            fix=f"use a bias of shape {out}",
        )
    return (*input.shape[:-1], *out)


def _linear_reference(input: Any, weight: Any, bias: Any = None) -> Any:
    """``input @ weight.T + bias``."""
    result = input @ weight.T
    return result if bias is None else result + bias


def _linear_samples(make: Any) -> Iterator[Sample]:
    """1-d to 3-d inputs, with and without bias; long rows."""
    for lead in ((), (4,), (2, 3), (0,)):
        yield Sample(make((*lead, 5)), make((3, 5)), make((3,)))
        yield Sample(make((*lead, 5)), make((3, 5)))
    yield Sample(make((4, 4)), make((4, 4)), make((4,)))
    yield Sample(make((17, 257)), make((5, 257)), make((5,)))
    yield Sample(make((3, 5)), make((5,)), None)


def _linear_errors(make: Any) -> Iterator[tuple[Sample, type[Exception], str]]:
    """Features and bias that do not fit."""
    yield Sample(make((4, 5)), make((3, 4))), RuntimeError, "weight"
    yield Sample(make((4, 5)), make((3, 5)), make((1,))), RuntimeError, "bias"


@composite(
    out=_linear_shape,
    dtype=promote,
    unbroadcast=False,
    cast="lower",
    reference=_linear_reference,
    samples=_linear_samples,
    errors=_linear_errors,
    dtypes="float",
    tolerance=dot,
    namespace="nn.functional",
)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``.

    ``input`` is ``(*, in_features)``, ``weight`` ``(out_features, in_features)``, ``bias``
    ``(out_features,)``; the result is ``(*, out_features)``. Raises ``ShapeError`` where they do
    not fit.
    """
    _linear_shape(input, weight, bias)
    input, weight, bias = common(promote, input, weight, bias)
    result = input.matmul(weight.mT if weight.ndim == 2 else weight)
    return result if bias is None else result + bias


def _linear_input_grad(grad: Any, weight: Any) -> Any:
    weight = adjoint(weight)
    return grad.unsqueeze(-1) * weight if weight.ndim == 1 else grad.matmul(weight)


def _linear_weight_grad(grad: Any, input: Any) -> Any:
    input = adjoint(input)
    if grad.ndim == input.ndim:  # otherwise the weight is a vector
        return linear_weight_grad(grad, input)
    if not grad.ndim:
        return grad * input
    return (grad.unsqueeze(-1) * input).sum(tuple(range(grad.ndim)))


def _bias_grad(grad: Tensor, bias_shape: tuple[int, ...]) -> Tensor:
    if not bias_shape:  # one number for all features
        return grad.sum()
    dims = tuple(range(grad.ndim - len(bias_shape)))
    return grad.sum(dims) if dims else grad


linear.vjp(
    input=_linear_input_grad,
    weight=_linear_weight_grad,
    bias=_bias_grad,
)


def _rows(x: Any) -> Any:
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _weight_grad_shape(grad_output: Any, input: Any) -> tuple[int, int]:
    return (grad_output.shape[-1], input.shape[-1])


def _weight_grad_samples(make: Any) -> Iterator[Sample]:
    """Any number of leading dimensions; features enough for kernels of large products."""
    for lead in ((), (4,), (2, 3)):
        yield Sample(make((*lead, 3)), make((*lead, 5)))
    yield Sample(make((3, 192)), make((3, 64)))


@composite(
    out=_weight_grad_shape,
    dtype=promote,
    unbroadcast=False,
    cast="lower",
    reference=lambda grad_output, input: _rows(grad_output).T @ _rows(input),
    samples=_weight_grad_samples,
    dtypes="float",
    tolerance=dot,
    namespace=(),
)
def linear_weight_grad(grad_output: Tensor, input: Tensor) -> Tensor:
    """``grad_output.T @ input`` over all leading dimensions: ``(out_features, in_features)``."""
    rows = prod(input.shape[:-1])
    return grad_output.reshape(rows, grad_output.shape[-1]).mT.matmul(
        input.reshape(rows, input.shape[-1])
    )


linear_weight_grad.vjp(
    grad_output=lambda grad, input: adjoint(input).matmul(grad.mT),
    input=lambda grad, grad_output: adjoint(grad_output).matmul(grad),
)


def _bilinear_reference(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """One quadratic form per output feature."""
    result = np.einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias


def _bilinear_samples(make: Any) -> Iterator[Sample]:
    """1-d to 3-d inputs, with and without bias."""
    for lead in ((), (4,), (2, 3)):
        yield Sample(make((*lead, 3)), make((*lead, 2)), make((5, 3, 2)), make((5,)))
    yield Sample(make((4, 3)), make((4, 2)), make((1, 3, 2)))


@composite(
    cast="widest_accelerated",
    reference=_bilinear_reference,
    samples=_bilinear_samples,
    dtypes="float",
    tolerance=dot,
    namespace="nn.functional",
)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input1^T weight[o] input2 + bias[o]`` for each output feature ``o``.

    Inputs are ``(*, I)`` and ``(*, J)``, ``weight`` is ``(O, I, J)``, the result ``(*, O)``. Raises
    ``ShapeError`` where they do not fit.
    """
    features = (input1.shape[-1], input2.shape[-1])
    if weight.ndim != 3 or tuple(weight.shape[1:]) != features:
        raise ShapeError(
            f"a weight of shape {tuple(weight.shape)} does not fit {features} input features",
            fix="use (out_features, in1_features, in2_features)",
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ShapeError(
            f"a bias of shape {tuple(bias.shape)} does not fit {weight.shape[0]} output features",
            fix=f"use a bias of shape ({weight.shape[0]},)",
        )
    if input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(
            f"inputs of shapes {tuple(input1.shape)} and {tuple(input2.shape)} differ before the "
            "last dimension",
            fix="expand one of them",
        )
    # (*, 1, 1, I) @ (O, I, J) -> (*, O, 1, J): each output's linear form in input2
    forms = input1.unsqueeze(-2).unsqueeze(-2).matmul(weight)
    if features[0]:  # a sum over nothing is 0, whatever it would be multiplied by
        forms = forms * input2.unsqueeze(-2).unsqueeze(-2)
    result = forms.sum((-2, -1))
    return result if bias is None else result + bias


def _forms(grad: Any, weight: Any) -> Any:
    """The bilinear form ``(*, I, J)`` whose outputs are weighed by ``grad`` ``(*, O)``."""
    outputs, *features = weight.shape
    rows = grad.matmul(adjoint(weight).reshape(outputs, prod(features)))
    return rows.reshape(*grad.shape[:-1], *features)


def _bilinear_weight_grad(grad: Any, input1: Any, input2: Any) -> Any:
    pairs = adjoint(input1).unsqueeze(-1) * adjoint(input2).unsqueeze(-2)
    features = pairs.shape[-2:]
    rows = pairs.reshape(*pairs.shape[:-2], prod(features))
    return linear_weight_grad(grad, rows).reshape(grad.shape[-1], *features)


bilinear.vjp(
    input1=lambda grad, input2, weight: (
        _forms(grad, weight).matmul(adjoint(input2).unsqueeze(-1)).squeeze(-1)
    ),
    input2=lambda grad, input1, weight: (
        adjoint(input1).unsqueeze(-2).matmul(_forms(grad, weight)).squeeze(-2)
    ),
    weight=_bilinear_weight_grad,
    bias=_bias_grad,
)


# ---- similarity and distance ------------------------------------------------------------------


def _similarity_reference(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """Each norm clamped on its own; it counts each element as often as the product does."""
    x1, x2 = np.broadcast_arrays(x1, x2)
    n1 = np.maximum(np.sqrt((x1 * x1).sum(dim, keepdims=True)), eps)
    n2 = np.maximum(np.sqrt((x2 * x2).sum(dim, keepdims=True)), eps)
    return (x1 / n1 * (x2 / n2)).sum(dim)


def _similarity_samples(make: Any) -> Iterator[Sample]:
    """Each dimension, and broadcasting."""
    for dim in (1, 0, -1):
        yield Sample(make((4, 3)), make((4, 3)), dim)
    yield Sample(make((2, 3, 4)), make((1, 3, 4)), 1)


@composite(
    cast="float32_accelerated",
    reference=_similarity_reference,
    samples=_similarity_samples,
    dtypes="float",
    tolerance=dot,
    namespace=("nn.functional", ""),
)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """``x1 . x2 / (max(|x1|, eps) * max(|x2|, eps))`` over ``dim``, which is removed."""
    if promote.compute(x1, x2).category < 2:
        raise DTypeError(
            f"a cosine needs floating-point vectors, got {x1.dtype.name} and {x2.dtype.name}",
            fix="convert with x.float()",
        )
    if eps < 0:
        raise ArgumentError(f"eps must be non-negative, got: {eps}", fix="use 1e-8")
    a, b = wide(x1), wide(x2)  # half precision knows no eps as small as this
    a, b = lazy.broadcast_tensors(a, b)  # a norm counts each element as often as the product
    result = (_unit(a, dim, eps) * _unit(b, dim, eps)).sum(dim)
    return result if x1.dtype is not x2.dtype else narrow(result, x1)


def _unit(x: Any, dim: int, eps: float) -> Any:
    """``x`` over its norm or ``eps``, the larger. A norm below ``eps`` is a constant to the
    gradient: that of a square root at 0 has no bound.
    """
    squares = (x * x).sum(dim, True)
    small = lazy.le(squares, eps * eps)
    return x / lazy.sqrt(squares.masked_fill(small, eps * eps))


def _distance_reference(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """The norm of the shifted difference."""
    return (np.abs(x1 - x2 + eps) ** p).sum(-1, keepdims=keepdim) ** (1 / p)


def _distance_samples(make: Any) -> Iterator[Sample]:
    """Norms 1, 2 and 3, and broadcasting."""
    for p in (2.0, 1.0, 3.0):
        yield Sample(make((4, 3)), make((4, 3)), p)
    yield Sample(make((2, 4, 3)), make((3,)), 2.0, 1e-6, True)


@composite(
    cast="float32_accelerated",
    reference=_distance_reference,
    samples=_distance_samples,
    takes=NUMBER,
    dtypes="float",
    tolerance=dot,
    namespace=("nn.functional", ""),
)
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The ``p``-norm of ``x1 - x2 + eps`` over the last dimension: floating, also of integers."""
    difference = wide(x1) - wide(x2) + eps  # whose square half precision does not know
    result = lazy.linalg_vector_norm(difference, p, -1, keepdim)
    dtype = promote.compute(x1, x2)
    return result.to_dtype(dtype) if dtype.is_floating_point else result


pairwise_distance.edge(
    "0 at a distance of 0",
    [[1.0, 2.0]],
    [[1.0, 2.0]],
    eps=0.0,
    gradient=([[0.0, 0.0]], [[0.0, 0.0]]),
)
