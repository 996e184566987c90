"""Metadata that the definitions of normalization share: rules, NumPy references, samples."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.support.samples import Sample
from coredispatch.registry.model.dtypes import DType, Promotion, default_dtype, float32
from coredispatch.registry.model.errors import ShapeError

# ---- rules ------------------------------------------------------------------------------------


def check_normalized(input: Any, normalized_shape: Any, *affine: Any) -> None:
    """Raise :class:`ShapeError` unless input and affine tensors have the normalized shape."""
    wanted = tuple(normalized_shape)
    if not wanted or tuple(input.shape[-len(wanted) :]) != wanted:
        raise ShapeError(
            f"normalized_shape {wanted} does not end the input's shape {tuple(input.shape)}",
            fix="the input's shape must end in normalized_shape, which must not be empty",
        )
    for tensor in affine:
        if tensor is not None and tuple(tensor.shape) != wanted:
            raise ShapeError(
                f"a weight or bias of shape {tuple(tensor.shape)} does not fit normalized_shape "
                f"{wanted}",
                fix=f"use the shape normalized_shape, {wanted}",
            )


def check_channels(input: Any, *vectors: Any) -> None:
    """Raise :class:`ShapeError` unless the input is ``(N, C, *)`` and each vector is ``(C,)``."""
    if input.ndim < 2:
        raise ShapeError(
            f"an input of shape {tuple(input.shape)} has no channels", fix="use (N, C) or (N, C, *)"
        )
    for vector in vectors:
        if vector is not None and tuple(vector.shape) != (input.shape[1],):
            raise ShapeError(
                f"a vector of shape {tuple(vector.shape)} does not fit {input.shape[1]} channels",
                fix=f"use one value per channel, shape ({input.shape[1]},)",
            )


def batch_norm_pair_shapes(input: Any, weight: Any, bias: Any, eps: float) -> list[Any]:
    """Shape rule of ``batch_norm_train``."""
    check_channels(input, weight, bias)
    if prod((input.shape[0], *input.shape[2:])) < 2:
        raise ShapeError(
            "training needs more than one value per channel, and the input has shape "
            f"{tuple(input.shape)}",
            fix="use a larger batch, or .eval()",
        )
    return [tuple(input.shape), (input.shape[1],), (input.shape[1],)]


def statistics_dtypes(input: Any, *_: Any) -> tuple[DType, DType, DType]:
    """Dtype rule of ``batch_norm_train``: statistics of half precision are float32."""
    own = DType.of(input.dtype)
    if own.category < 2:
        own = default_dtype()
    wide = float32 if own.itemsize == 2 else own
    return own, wide, wide


of_input = Promotion("of_input", to_float=True, keeps_half=True)


# ---- references -------------------------------------------------------------------------------


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    """``x * weight + bias`` over the last dimensions."""
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def layer_norm_reference(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """By its definition, over the last dimensions."""
    dims = tuple(range(-len(normalized_shape), 0))
    x = (input - input.mean(dims, keepdims=True)) / np.sqrt(input.var(dims, keepdims=True) + eps)
    return _affine(x, weight, bias)


def rms_norm_reference(
    input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None
) -> Any:
    """By its definition; ``eps`` None is the tested dtype's, so the samples always give it."""
    dims = tuple(range(-len(normalized_shape), 0))
    eps = np.finfo(input.dtype).eps if eps is None else eps
    return _affine(input / np.sqrt((input**2).mean(dims, keepdims=True) + eps), weight, None)


def _by_channel(v: Any, ndim: int) -> Any:
    return v.reshape(-1, *(1,) * (ndim - 2))


def _channel_affine(x: Any, weight: Any, bias: Any) -> Any:
    weight = None if weight is None else _by_channel(weight, x.ndim)
    return _affine(x, weight, None if bias is None else _by_channel(bias, x.ndim))


def group_norm_reference(
    input: Any, num_groups: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """Each group of channels of each sample standardized."""
    x = input.reshape(input.shape[0], num_groups, -1) if input.size else input
    if input.size:
        x = (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + eps)
    return _channel_affine(x.reshape(input.shape), weight, bias)


def inference_reference(input: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: Any) -> Any:
    """Scale and shift by given statistics."""
    x = input - _by_channel(mean, input.ndim)
    return _channel_affine(x / np.sqrt(_by_channel(var, input.ndim) + eps), weight, bias)


def batch_norm_train_reference(input: Any, weight: Any, bias: Any, eps: Any) -> Any:
    """Result, mean and biased variance."""
    dims = (0, *range(2, input.ndim))
    mean, var = input.mean(dims), input.var(dims)
    return inference_reference(input, mean, var, weight, bias, eps), mean, var


def batch_norm_reference(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """The result; what becomes of the running statistics has a test of its own."""
    if training:
        return batch_norm_train_reference(input, weight, bias, eps)[0]
    return inference_reference(input, running_mean, running_var, weight, bias, eps)


def instance_norm_reference(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """One group per channel."""
    if not use_input_stats:
        return inference_reference(input, running_mean, running_var, weight, bias, eps)
    return group_norm_reference(input, input.shape[1], weight, bias, eps)


def normalize_reference(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    """Division by the clamped ``p``-norm."""
    norm = (np.abs(input) ** p).sum(None if dim == () else dim, keepdims=True) ** (1 / p)
    return input / np.maximum(norm, eps)


def local_response_reference(
    input: Any, size: Any, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """Each channel with its neighbours, ``size // 2`` of them before it."""
    result = np.empty_like(input)
    for c in range(input.shape[1]):
        near = input[:, max(c - size // 2, 0) : c + (size - 1) // 2 + 1]
        result[:, c] = input[:, c] / (k + alpha * (near**2).sum(1) / size) ** beta
    return result


# ---- samples ----------------------------------------------------------------------------------

_ROWS = (((5,), 1), ((3, 5), 1), ((4, 8), 1), ((2, 3, 17), 1), ((2, 3, 5), 2), ((3, 257), 1))


def layer_samples(make: Any) -> Iterator[Sample]:
    """Shapes with one and two normalized dimensions, with and without weight and bias."""
    for shape, n in (*_ROWS, ((0, 4), 1)):
        last = shape[-n:]
        yield Sample(make(shape), last, make(last), make(last), 1e-5)
        yield Sample(make(shape), last)
        yield Sample(make(shape), last, make(last), None, 1e-3)


def rms_samples(make: Any) -> Iterator[Sample]:
    """As :func:`layer_samples`, without bias."""
    for shape, n in (*_ROWS, ((0, 4), 1)):
        yield Sample(make(shape), shape[-n:], make(shape[-n:]), 1e-5)
        yield Sample(make(shape), shape[-n:], None, 1e-3)


_IMAGES = ((3, 4), (2, 4, 5), (2, 4, 3, 3), (1, 4, 2, 3, 2))


def group_samples(make: Any) -> Iterator[Sample]:
    """One group, two groups, one channel per group."""
    for shape in _IMAGES[1:]:
        for groups in (1, 2, 4):
            yield Sample(make(shape), groups, make(4), make(4), 1e-5)
        yield Sample(make(shape), 2)


def train_samples(make: Any) -> Iterator[Sample]:
    """2-d to 5-d inputs, with and without weight and bias."""
    for shape in _IMAGES:
        yield Sample(make(shape), make(4), make(4), 1e-5)
        yield Sample(make(shape), None, None, 1e-3)


def inference_samples(make: Any) -> Iterator[Sample]:
    """As :func:`train_samples`, with positive variances."""
    for shape in (*_IMAGES, (0, 4)):
        yield Sample(make(shape), make(4), make.positive(4), make(4), make(4), 1e-5)
        yield Sample(make(shape), make(4), make.positive(4), None, None, 1e-3)


def trained_samples(make: Any) -> Iterator[Sample]:
    """Both modes of ``batch_norm``."""
    for shape in _IMAGES:
        yield Sample(make(shape), make(4), make.positive(4), make(4), make(4), True, 0.1, 1e-5)
        yield Sample(make(shape), make(4), make.positive(4), make(4), make(4), False, 0.1, 1e-5)
        yield Sample(make(shape), None, None, None, None, True, 0.1, 1e-5)


def instance_samples(make: Any) -> Iterator[Sample]:
    """Both modes of ``instance_norm``."""
    for shape in _IMAGES[1:]:
        yield Sample(make(shape), None, None, make(4), make(4), True, 0.1, 1e-5)
        yield Sample(make(shape), make(4), make.positive(4), None, None, True, 0.1, 1e-5)
        yield Sample(make(shape), make(4), make.positive(4), None, None, False, 0.1, 1e-5)


def normalize_samples(make: Any) -> Iterator[Sample]:
    """Orders 1, 2 and 3, each dimension."""
    for p in (2.0, 1.0, 3.0):
        for shape, dim in (((3, 5), 1), ((3, 5), 0), ((2, 3, 4), -1), ((2, 3, 4), 1)):
            yield Sample(make(shape), p, dim, 1e-12)


def channel_samples(make: Any) -> Iterator[Sample]:
    """Odd and even neighbourhoods."""
    for shape in _IMAGES[1:]:
        yield Sample(make(shape), 3, 0.1, 0.75, 1.0)
        yield Sample(make(shape), 2, 0.1, 0.5, 2.0)
