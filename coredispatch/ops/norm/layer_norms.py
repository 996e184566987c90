"""Normalization of each sample by itself: layer, root-mean-square and group norm, vector scaling.

Each forward operator is one autograd node; its ``*_backward`` operator computes the statistics
anew from the input instead of keeping them. The dtype is what the arguments promote to, but that
of an input in half precision beside float32 weights; half precision is computed in float32.
Variances are means of squared deviations, never ``E[x^2] - E[x]^2``.
"""

from __future__ import annotations

from math import prod
from typing import Any

from coredispatch.ops.norm.backward_reference import (
    group_backward_samples,
    group_norm_backward_reference,
    layer_backward_samples,
    layer_norm_backward_reference,
    rms_norm_backward_reference,
)
from coredispatch.ops.norm.reference import (
    channel_samples,
    check_channels,
    check_normalized,
    group_norm_reference,
    group_samples,
    layer_norm_reference,
    layer_samples,
    local_response_reference,
    normalize_reference,
    normalize_samples,
    of_input,
    rms_norm_reference,
    rms_samples,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import conditioned
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, ShapeError

METADATA: dict[str, Any] = {
    "cast": "float32_accelerated",
    "dtypes": "float",
    "tolerance": conditioned,
    "namespace": "nn.functional",
    "unbroadcast": False,
}
INNER = {**METADATA, "namespace": ()}
# Products of what may be large cancel here: the bound follows from the decomposition's own
# roundings.
BACKWARD = {**INNER, "tolerance": None}


def _standardize(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """``(x - mean) * rstd`` and ``rstd = 1 / sqrt(var + eps)`` over ``dims``."""
    centered = x - x.mean(dims, True)
    rstd = ((centered * centered).mean(dims, True) + eps).rsqrt()
    return centered * rstd, rstd


def _standardize_backward(
    grad: Tensor, normal: Tensor, rstd: Tensor, dims: tuple[int, ...]
) -> Tensor:
    """Gradient of :func:`_standardize`'s first result (Ba, Kiros and Hinton, 2016)."""
    along = (grad * normal).mean(dims, True)
    return (grad - grad.mean(dims, True) - normal * along) * rstd


# ---- layer norm and its relatives -------------------------------------------------------------


def _layer_norm_shape(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    check_normalized(input, normalized_shape, weight, bias)
    return tuple(input.shape)


def _rms_norm_shape(input: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
    check_normalized(input, normalized_shape, weight)
    return tuple(input.shape)


@composite(
    takes="float",
    out=_layer_norm_shape,
    dtype=of_input,
    reference=layer_norm_reference,
    samples=layer_samples,
    **METADATA,
)
def layer_norm(
    input: Tensor,
    normalized_shape: IntList,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """``(input - mean) / sqrt(var + eps) * weight + bias`` over the last dimensions.

    Mean and (biased) variance are taken over the dimensions ``normalized_shape``, which ``input``
    must end in; ``weight`` and ``bias`` have that shape. The result has the input's shape. Raises
    ``ShapeError`` where they do not. Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """
    check_normalized(input, normalized_shape, weight, bias)
    input, weight, bias = common(of_input, input, weight, bias)
    dims = tuple(range(-len(normalized_shape), 0))
    result, _ = _standardize(wide(input), dims, eps)
    if weight is not None:
        result = result * weight
    if bias is not None:
        result = result + bias
    return narrow(result, input)


@layer_norm.vjp
def _(grad, input, normalized_shape, weight, eps):
    return layer_norm_backward(grad, input, normalized_shape, weight, eps)


@composite(
    dtype=of_input,
    reference=layer_norm_backward_reference,
    samples=layer_backward_samples,
    **BACKWARD,
)
def layer_norm_backward(
    grad_output: Tensor, input: Tensor, normalized_shape: IntList, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of :func:`layer_norm`: of the input, the weight and the bias."""
    grad_output, input, weight = common(of_input, grad_output, input, weight)
    dims = tuple(range(-len(normalized_shape), 0))
    lead = tuple(range(input.ndim - len(normalized_shape)))
    normal, rstd = _standardize(wide(input), dims, eps)
    grad = wide(grad_output)
    weight_grad, bias_grad = grad * normal, grad
    if lead:
        weight_grad, bias_grad = weight_grad.sum(lead), bias_grad.sum(lead)
    if weight is not None:
        grad = grad * weight
    result = _standardize_backward(grad, normal, rstd, dims)
    return narrow(result, input), narrow(weight_grad, input), narrow(bias_grad, input)


def _eps_of(eps: float | None, x: Tensor) -> float:
    """``eps``, or the machine epsilon of the dtype that is computed in: float32 for half."""
    if eps is not None:
        return eps
    return 2.0**-52 if x.dtype.name == "float64" else 2.0**-23


@composite(
    takes="float+complex",
    out=_rms_norm_shape,
    dtype=of_input,
    reference=rms_norm_reference,
    samples=rms_samples,
    **{**METADATA, "namespace": ("nn.functional", "")},
)
def rms_norm(
    input: Tensor,
    normalized_shape: IntList,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """``input / sqrt(mean(input^2) + eps) * weight`` over the last dimensions.

    ``eps`` is the machine epsilon of the input's dtype unless given, and of float32 for half
    precision. Shapes and errors as in
    :func:`layer_norm`. Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    check_normalized(input, normalized_shape, weight)
    input, weight = common(of_input, input, weight)
    dims = tuple(range(-len(normalized_shape), 0))
    x = wide(input)
    result = x * ((x * x).mean(dims, True) + _eps_of(eps, input)).rsqrt()
    return narrow(result if weight is None else result * weight, input)


@rms_norm.vjp
def _(grad, input, normalized_shape, weight, eps):
    return rms_norm_backward(grad, adjoint(input), normalized_shape, adjoint(weight), eps)


@composite(
    dtype=of_input,
    reference=rms_norm_backward_reference,
    samples=layer_backward_samples,
    **BACKWARD,
)
def rms_norm_backward(
    grad_output: Tensor,
    input: Tensor,
    normalized_shape: IntList,
    weight: Tensor | None,
    eps: float | None,
) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`rms_norm`: of the input and the weight."""
    grad_output, input, weight = common(of_input, grad_output, input, weight)
    dims = tuple(range(-len(normalized_shape), 0))
    lead = tuple(range(input.ndim - len(normalized_shape)))
    x, grad = wide(input), wide(grad_output)
    rstd = ((x * x).mean(dims, True) + _eps_of(eps, input)).rsqrt()
    normal = x * rstd
    weight_grad = grad * normal
    if lead:
        weight_grad = weight_grad.sum(lead)
    if weight is not None:
        grad = grad * weight
    result = (grad - normal * (grad * normal).mean(dims, True)) * rstd
    return narrow(result, input), narrow(weight_grad, input)


# ---- group norm -------------------------------------------------------------------------------


def _group_norm_shape(input: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    check_channels(input, weight, bias)
    if num_groups < 1 or input.shape[1] % num_groups:
        raise ArgumentError(
            f"{input.shape[1]} channels do not split into {num_groups} groups",
            fix="use a num_groups that divides the number of channels",
        )
    return tuple(input.shape)


def channelwise(v: Tensor, ndim: int) -> Tensor:
    """A vector over the channels, shaped to broadcast against an ``ndim``-d input."""
    return v.reshape(1, -1, *(1,) * (ndim - 2))


@composite(
    takes="float",
    out=_group_norm_shape,
    dtype=of_input,
    reference=group_norm_reference,
    samples=group_samples,
    **METADATA,
)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer norm over each of ``num_groups`` groups of channels of ``(N, C, *)``.

    ``weight`` and ``bias`` are ``(C,)``. Raises ``ArgumentError`` where the channels do not divide
    into the groups. Wu and He, "Group Normalization", 2018.
    """
    _group_norm_shape(input, num_groups, weight, bias, eps)
    input, weight, bias = common(of_input, input, weight, bias)
    grouped = wide(input).reshape(input.shape[0], num_groups, *_rest(input, num_groups))
    result = _standardize(grouped, (2,), eps)[0].reshape(input.shape)
    if weight is not None:
        result = result * channelwise(weight, input.ndim)
    if bias is not None:
        result = result + channelwise(bias, input.ndim)
    return narrow(result, input)


def _rest(input: Tensor, num_groups: int) -> tuple[int]:
    return (input.shape[1] // num_groups * prod(input.shape[2:]),)


@group_norm.vjp
def _(grad, input, num_groups, weight, eps):
    return group_norm_backward(grad, input, num_groups, weight, eps)


def _group_backward_shapes(
    grad_output: Any, input: Any, num_groups: int, weight: Any, eps: float
) -> list[Any]:
    shape = _group_norm_shape(input, num_groups, weight, None, eps)
    if tuple(grad_output.shape) != tuple(shape):
        raise ShapeError(
            f"a gradient of shape {tuple(grad_output.shape)} does not fit an input of shape "
            f"{tuple(shape)}",
            fix="give the gradient of the normalized input",
        )
    return [tuple(shape), (shape[1],), (shape[1],)]


@composite(
    out=_group_backward_shapes,
    dtype=of_input,
    reference=group_norm_backward_reference,
    samples=group_backward_samples,
    **BACKWARD,
)
def group_norm_backward(
    grad_output: Tensor, input: Tensor, num_groups: int, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of :func:`group_norm`: of the input, the weight and the bias."""
    grad_output, input, weight = common(of_input, grad_output, input, weight)
    grouped = (input.shape[0], num_groups, *_rest(input, num_groups))
    normal, rstd = _standardize(wide(input).reshape(grouped), (2,), eps)
    grad = wide(grad_output)
    others = (0, *range(2, input.ndim))
    weight_grad = (grad * normal.reshape(input.shape)).sum(others)
    bias_grad = grad.sum(others)
    if weight is not None:
        grad = grad * channelwise(weight, input.ndim)
    result = _standardize_backward(grad.reshape(grouped), normal, rstd, (2,))
    return (
        narrow(result.reshape(input.shape), input),
        narrow(weight_grad, input),
        narrow(bias_grad, input),
    )


# ---- scaling to unit length -------------------------------------------------------------------


@composite(
    takes="float+complex", reference=normalize_reference, samples=normalize_samples, **METADATA
)
def normalize(input: Tensor, p: float | None = 2.0, dim: IntList = 1, eps: float = 1e-12) -> Tensor:
    """``input / max(norm, eps)`` with the ``p``-norm over ``dim``; the input's shape.

    None for ``p`` is 2.
    """
    p = 2.0 if p is None else p
    x = wide(input)  # half precision knows no eps as small as this
    norm = lazy.linalg_vector_norm(x, p, dim, True)
    return narrow(x / norm.clamp_min(eps), input)


@composite(reference=local_response_reference, samples=channel_samples, **METADATA)
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """``input / (k + alpha * mean(input^2 over size channels))^beta`` of ``(N, C, *)``.

    Krizhevsky, Sutskever and Hinton, 2012.
    """
    if input.ndim < 3:
        raise ShapeError(
            f"an input of shape {tuple(input.shape)} has no channels beside a dimension",
            fix="use (N, C, *)",
        )
    if not input.numel():
        return input
    given = wide(input)
    squares = (given * given).transpose(1, -1)
    padded = lazy.pad(squares, (size // 2, (size - 1) // 2))
    mean = padded.unfold(-1, size, 1).sum(-1) / size
    found = given / (mean * alpha + k).pow(beta).transpose(1, -1)
    return narrow(found, input) if input.dtype.is_floating_point else found
