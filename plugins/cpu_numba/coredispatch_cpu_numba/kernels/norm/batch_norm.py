"""Batch normalization of contiguous arrays ``(images, channels, *)``, and its gradients.

Of half precision, what there is one number per channel of is float32, also in results.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import HALVES, POINTWISE, constant, is_dense, is_like
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import COLUMNS

__all__ = ["KERNELS", "LEAST", "WHEN"]

_LEAST = 64
_SPLIT = 32768
_FLOAT32 = np.dtype(np.float32)
_SHORTEST = 8  # elements of a channel of an image: shorter ones are no work for vectors
_train = Loop("norm.batch_norm", "train", _SPLIT)
_train_backward = Loop("norm.batch_norm", "train_backward", _SPLIT)
_inference = Loop("norm.batch_norm", "inference", _SPLIT)
_train_flat = Loop("norm.batch_norm", "train_flat", _SPLIT)
_train_flat_backward = Loop("norm.batch_norm", "train_flat_backward", _SPLIT)
_inference_flat = Loop("norm.batch_norm", "inference_flat", _SPLIT)


def _length(input: np.ndarray) -> int:
    """Elements of one channel of one image."""
    return prod(input.shape[2:])


def _wide(own: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of what there is one number per channel of."""
    return _FLOAT32 if own in HALVES else own


def batch_norm_train(
    input: np.ndarray, weight: Any, bias: Any, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The normalized input, and mean and biased variance of each channel."""
    own, channels, n = input.dtype, input.shape[1], _length(input)
    wide = _wide(own)
    weight = constant(channels, wide, 1.0) if weight is None else weight
    bias = constant(channels, wide, 0.0) if bias is None else bias
    out, mean, var = np.empty(input.shape, own), np.empty(channels, wide), np.empty(channels, wide)
    if n == 1:
        flat = (input, weight, bias, channels, float(eps), out, mean, var)
        weight_of_tile = len(input) * COLUMNS
        _train_flat(own, input.size, -(-channels // COLUMNS), *flat, weight=weight_of_tile)
        return out, mean, var
    given = (input, weight, bias, channels, n, float(eps), out, mean, var)
    _train(own, input.size, channels, *given, weight=len(input) * n)
    return out, mean, var


def batch_norm_train_backward(
    grad: np.ndarray,
    mean_grad: np.ndarray,
    var_grad: np.ndarray,
    input: np.ndarray,
    weight: Any,
    mean: np.ndarray,
    var: np.ndarray,
    eps: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of the input, the weight and the bias."""
    own, channels, n = input.dtype, input.shape[1], _length(input)
    wide = _wide(own)
    weight = constant(channels, wide, 1.0) if weight is None else weight
    out = np.empty(input.shape, own)
    weight_grad, bias_grad = np.empty(channels, wide), np.empty(channels, wide)
    results = (out, weight_grad, bias_grad)
    if n == 1:
        flat = (grad, mean_grad, var_grad, input, weight, mean, var, channels, float(eps))
        tiles, each = -(-channels // COLUMNS), len(input) * COLUMNS
        _train_flat_backward(own, input.size, tiles, *flat, *results, weight=each)
        return results
    given = (grad, mean_grad, var_grad, input, weight, mean, var, channels, n, float(eps))
    _train_backward(own, input.size, channels, *given, *results, weight=len(input) * n)
    return results


def batch_norm_inference(
    input: np.ndarray, mean: np.ndarray, var: np.ndarray, weight: Any, bias: Any, eps: float
) -> np.ndarray:
    """The input normalized by statistics that are given."""
    own, (images, channels), n = input.dtype, input.shape[:2], _length(input)
    wide = _wide(own)
    weight = constant(channels, wide, 1.0) if weight is None else weight
    bias = constant(channels, wide, 0.0) if bias is None else bias
    out = np.empty(input.shape, own)
    if n == 1:
        flat = (input, mean, var, weight, bias, channels, float(eps), out)
        _inference_flat(own, input.size, images, *flat, weight=channels)
        return out
    given = (input, mean, var, weight, bias, channels, n, float(eps), out)
    _inference(own, input.size, images * channels, *given, weight=n)
    return out


def _fits(input: Any, *vectors: Any) -> bool:
    """Whether the input is contiguous and the vectors, or None, have one element per channel."""
    if not is_dense(input, _LEAST, POINTWISE) or input.ndim < 2:
        return False
    if 1 < _length(input) < _SHORTEST:
        return False
    shape, dtype = input.shape[1:2], _wide(input.dtype)
    return all(
        v is None or (v.shape == shape and v.dtype == dtype and v.flags.c_contiguous)
        for v in vectors
    )


def _accepts_train(input: Any, weight: Any, bias: Any, eps: Any) -> bool:
    return _fits(input, weight, bias)


def _accepts_backward(
    grad: Any, mean_grad: Any, var_grad: Any, input: Any, weight: Any, mean: Any, var: Any, eps: Any
) -> bool:
    return _fits(input, mean_grad, var_grad, weight, mean, var) and is_like(grad, input)


def _accepts_inference(input: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: Any) -> bool:
    return _fits(input, mean, var, weight, bias)


KERNELS: dict[str, Callable[..., Any]] = {
    "batch_norm_inference": batch_norm_inference,
    "batch_norm_train": batch_norm_train,
    "batch_norm_train_backward": batch_norm_train_backward,
}
WHEN: dict[str, Callable[..., bool]] = {
    "batch_norm_inference": _accepts_inference,
    "batch_norm_train": _accepts_train,
    "batch_norm_train_backward": _accepts_backward,
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
