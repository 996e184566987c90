"""NumPy references and samples of the backward operators of normalization, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support.precision import terms_of
from coredispatch.ops.support.samples import Sample


def _near_zero(make: Any, shape: Any) -> Any:
    """Gradients and weights: no values with large means, under which their products cancel."""
    return make(shape, low=-2.0, high=2.0)


# ---- norms ------------------------------------------------------------------------------------


def _standardized(x: Any, dims: Any, eps: float) -> tuple[Any, Any]:
    std = np.sqrt(x.var(dims, keepdims=True) + eps)
    return (x - x.mean(dims, keepdims=True)) / std, std


def _unstandardized(g: Any, normal: Any, std: Any, dims: Any) -> Any:
    mean = g.mean(dims, keepdims=True)
    return (g - mean - normal * (g * normal).mean(dims, keepdims=True)) / std


def _terms(g: Any, normal: Any, std: Any, dims: Any) -> Any:
    """Of ``_unstandardized``: among few elements they nearly cancel."""
    g, normal = abs(g), abs(normal)
    return (g + g.mean(dims, keepdims=True) + normal * (g * normal).mean(dims, keepdims=True)) / std


def layer_norm_backward_reference(
    grad_output: Any, input: Any, normalized_shape: Any, weight: Any, eps: Any
) -> Any:
    """Gradients of input, weight and bias."""
    n = len(normalized_shape)
    dims, lead = tuple(range(-n, 0)), tuple(range(input.ndim - n))
    normal, std = _standardized(input, dims, eps)
    g = grad_output if weight is None else grad_output * weight
    return (
        _unstandardized(g, normal, std, dims),
        (grad_output * normal).sum(lead),
        grad_output.sum(lead),
    )


@terms_of(layer_norm_backward_reference)
def _(grad_output: Any, input: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
    n = len(normalized_shape)
    dims, lead = tuple(range(-n, 0)), tuple(range(input.ndim - n))
    normal, std = _standardized(input, dims, eps)
    g = grad_output if weight is None else grad_output * weight
    grads = abs(grad_output)
    return _terms(g, normal, std, dims), (grads * abs(normal)).sum(lead), grads.sum(lead)


def rms_norm_backward_reference(
    grad_output: Any, input: Any, normalized_shape: Any, weight: Any, eps: Any
) -> Any:
    """Gradients of input and weight."""
    n = len(normalized_shape)
    dims, lead = tuple(range(-n, 0)), tuple(range(input.ndim - n))
    rms = np.sqrt((input**2).mean(dims, keepdims=True) + eps)
    normal = input / rms
    g = grad_output if weight is None else grad_output * weight
    input_grad = (g - normal * (g * normal).mean(dims, keepdims=True)) / rms
    return input_grad, (grad_output * normal).sum(lead)


@terms_of(rms_norm_backward_reference)
def _(grad_output: Any, input: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
    n = len(normalized_shape)
    dims, lead = tuple(range(-n, 0)), tuple(range(input.ndim - n))
    rms = np.sqrt((input**2).mean(dims, keepdims=True) + eps)
    normal = abs(input / rms)
    g = abs(grad_output if weight is None else grad_output * weight)
    terms = (g + normal * (g * normal).mean(dims, keepdims=True)) / rms
    return terms, (abs(grad_output) * normal).sum(lead)


def _by_channel(v: Any, x: Any) -> Any:
    return v.reshape(-1, *(1,) * (x.ndim - 2))


def group_norm_backward_reference(
    grad_output: Any, input: Any, num_groups: Any, weight: Any, eps: Any
) -> Any:
    """Gradients of input, weight and bias."""
    grouped = (input.shape[0], num_groups, -1)
    normal, std = _standardized(input.reshape(grouped), (2,), eps)
    g = grad_output if weight is None else grad_output * _by_channel(weight, input)
    others = (0, *range(2, input.ndim))
    return (
        _unstandardized(g.reshape(grouped), normal, std, (2,)).reshape(input.shape),
        (grad_output * normal.reshape(input.shape)).sum(others),
        grad_output.sum(others),
    )


@terms_of(group_norm_backward_reference)
def _(grad_output: Any, input: Any, num_groups: Any, weight: Any, eps: Any) -> Any:
    grouped = (input.shape[0], num_groups, -1)
    normal, std = _standardized(input.reshape(grouped), (2,), eps)
    g = grad_output if weight is None else grad_output * _by_channel(weight, input)
    others, grads = (0, *range(2, input.ndim)), abs(grad_output)
    return (
        _terms(g.reshape(grouped), normal, std, (2,)).reshape(input.shape),
        (grads * abs(normal).reshape(input.shape)).sum(others),
        grads.sum(others),
    )


def batch_norm_backward_reference(
    grad_output: Any,
    mean_grad: Any,
    var_grad: Any,
    input: Any,
    weight: Any,
    mean: Any,
    var: Any,
    eps: Any,
) -> Any:
    """Gradients of input, weight and bias, from those of the result and of both statistics."""
    others = (0, *range(2, input.ndim))
    count = input.size // input.shape[1]
    std = np.sqrt(var + eps)
    centered = input - _by_channel(mean, input)
    bias_grad = grad_output.sum(others)
    weight_grad = (grad_output * centered).sum(others) / std
    scale = (1 if weight is None else weight) / std
    slope = 2 * var_grad - scale / std * weight_grad
    level = mean_grad - scale * bias_grad
    input_grad = (
        grad_output * _by_channel(scale, input)
        + (centered * _by_channel(slope, input) + _by_channel(level, input)) / count
    )
    return input_grad, weight_grad, bias_grad


@terms_of(batch_norm_backward_reference)
def _(
    grad_output: Any, mean_grad: Any, var_grad: Any, input: Any, weight: Any, mean: Any, var: Any,
    eps: Any,
) -> Any:  # fmt: skip
    others = (0, *range(2, input.ndim))
    count = input.size // input.shape[1]
    std, grads = np.sqrt(var + eps), abs(grad_output)
    centered = abs(input - _by_channel(mean, input))
    bias_terms, weight_terms = grads.sum(others), (grads * centered).sum(others) / std
    scale = abs(1 if weight is None else weight) / std
    slope = 2 * abs(var_grad) + scale / std * weight_terms
    level = abs(mean_grad) + scale * bias_terms
    terms = grads * _by_channel(scale, input)
    terms = terms + (centered * _by_channel(slope, input) + _by_channel(level, input)) / count
    return terms, weight_terms, bias_terms


def layer_backward_samples(make: Any) -> Iterator[Sample]:
    """One and two normalized dimensions, short and long rows."""
    for shape, n in (((5,), 1), ((3, 5), 1), ((8, 8), 1), ((2, 3, 4), 2), ((3, 257), 1)):
        last = shape[-n:]
        grad, weight = _near_zero(make, shape), _near_zero(make, last)
        yield Sample(grad, make(shape), last, weight, 1e-3)
        yield Sample(grad, make(shape), last, None, 1e-3)


def group_backward_samples(make: Any) -> Iterator[Sample]:
    """One and several groups."""
    for shape in ((2, 4, 5), (2, 4, 3, 3)):
        grad, weight = _near_zero(make, shape), _near_zero(make, 4)
        for groups in (1, 2):
            yield Sample(grad, make(shape), groups, weight, 1e-3)
        yield Sample(grad, make(shape), 2, None, 1e-3)


def batch_backward_samples(make: Any) -> Iterator[Sample]:
    """2-d to 4-d inputs; the statistics get gradients too."""
    for shape in ((6, 4), (2, 4, 5), (2, 4, 3, 3)):
        for weight in (_near_zero(make, 4), None):
            grads = _near_zero(make, shape), _near_zero(make, 4), _near_zero(make, 4)
            yield Sample(*grads, make(shape), weight, make(4), make.positive(4), 1e-3)


# ---- cross entropy ----------------------------------------------------------------------------
