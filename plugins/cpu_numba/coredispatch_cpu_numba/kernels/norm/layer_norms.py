"""layer_norm, rms_norm, group_norm and their gradients, of contiguous arrays."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import constant, is_dense, is_like
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.layout import strips

__all__ = ["KERNELS", "LEAST", "WHEN"]

Dims = tuple[int, ...]

_LEAST, _LEAST_GROUPS = 64, 1024
_SPLIT = 32768

_layer_norm = Loop("norm.layer_norms", "layer_norm", _SPLIT)
_layer_norm_backward = Loop("norm.layer_norms", "layer_norm_backward", _SPLIT)
_group_norm = Loop("norm.layer_norms", "group_norm", _SPLIT)
_group_norm_backward = Loop("norm.layer_norms", "group_norm_backward", _SPLIT)
_rms_norm = Loop("norm.layer_norms", "rms_norm", _SPLIT)
_rms_norm_backward = Loop("norm.layer_norms", "rms_norm_backward", _SPLIT)


def layer_norm(
    input: np.ndarray, normalized_shape: Dims, weight: Any, bias: Any, eps: float
) -> np.ndarray:
    """``(input - mean) / sqrt(var + eps) * weight + bias``"""
    n, size, own = prod(normalized_shape), input.size, input.dtype
    weight = constant(n, own, 1.0) if weight is None else weight
    bias = constant(n, own, 0.0) if bias is None else bias
    out = np.empty(input.shape, own)
    _layer_norm(own, size, size // n, input, weight, bias, n, float(eps), out, weight=n)
    return out


def layer_norm_backward(
    grad: np.ndarray, input: np.ndarray, normalized_shape: Dims, weight: Any, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of the input, the weight and the bias."""
    n, size, own = prod(normalized_shape), input.size, input.dtype
    weight = constant(n, own, 1.0) if weight is None else weight
    height, count = strips(size // n, 16)
    out = np.empty(input.shape, own)
    weight_grad, bias_grad = np.empty((count, n), own), np.empty((count, n), own)
    arguments = (grad, input, weight, n, height, float(eps), out, weight_grad, bias_grad)
    _layer_norm_backward(own, size, count, *arguments, weight=height * n)
    return (
        out,
        _folded(weight_grad).reshape(normalized_shape),
        _folded(bias_grad).reshape(normalized_shape),
    )


def rms_norm(
    input: np.ndarray, normalized_shape: Dims, weight: Any, eps: float | None
) -> np.ndarray:
    """``input / sqrt(mean(input^2) + eps) * weight``"""
    n, size, own = prod(normalized_shape), input.size, input.dtype
    weight = constant(n, own, 1.0) if weight is None else weight
    out = np.empty(input.shape, own)
    _rms_norm(own, size, size // n, input, weight, n, _eps_of(eps, own), out, weight=n)
    return out


def rms_norm_backward(
    grad: np.ndarray, input: np.ndarray, normalized_shape: Dims, weight: Any, eps: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the input and the weight."""
    n, size, own = prod(normalized_shape), input.size, input.dtype
    weight = constant(n, own, 1.0) if weight is None else weight
    height, count = strips(size // n, 16)
    out, weight_grad = np.empty(input.shape, own), np.empty((count, n), own)
    arguments = (grad, input, weight, n, height, _eps_of(eps, own), out, weight_grad)
    _rms_norm_backward(own, size, count, *arguments, weight=height * n)
    return out, _folded(weight_grad).reshape(normalized_shape)


def _groups(input: np.ndarray, num_groups: int) -> tuple[int, int]:
    """Channels of a group, elements of a channel."""
    return input.shape[1] // num_groups, prod(input.shape[2:])


def group_norm(
    input: np.ndarray, num_groups: int, weight: Any, bias: Any, eps: float
) -> np.ndarray:
    """Each group of channels normalized, times ``weight``, plus ``bias``."""
    channels, n = _groups(input, num_groups)
    size, own, all_channels = input.size, input.dtype, input.shape[1]
    weight = constant(all_channels, own, 1.0) if weight is None else weight
    bias = constant(all_channels, own, 0.0) if bias is None else bias
    out = np.empty(input.shape, own)
    arguments = (input, weight, bias, num_groups, channels, n, float(eps), out)
    _group_norm(own, size, len(input) * num_groups, *arguments, weight=channels * n)
    return out


def group_norm_backward(
    grad: np.ndarray, input: np.ndarray, num_groups: int, weight: Any, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of the input, the weight and the bias."""
    channels, n = _groups(input, num_groups)
    size, own, batch, all_channels = input.size, input.dtype, *input.shape[:2]
    weight = constant(all_channels, own, 1.0) if weight is None else weight
    out = np.empty(input.shape, own)
    weight_grad, bias_grad = (np.empty((batch, all_channels), own) for _ in range(2))
    arguments = (grad, input, weight, num_groups, channels, n, float(eps))
    results = (out, weight_grad, bias_grad)
    _group_norm_backward(own, size, batch * num_groups, *arguments, *results, weight=channels * n)
    return out, np.add.reduce(weight_grad, 0), np.add.reduce(bias_grad, 0)


def _folded(parts: np.ndarray) -> np.ndarray:
    return parts if parts.shape[0] == 1 else np.add.reduce(parts, 0)


def _eps_of(eps: float | None, dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps) if eps is None else float(eps)


def _fits(input: np.ndarray, normalized_shape: Dims, *parameters: Any) -> bool:
    """Whether the shapes are right; what is wrong is left to NumPy's kernel to complain about."""
    count = len(normalized_shape)
    if not count or input.shape[-count:] != normalized_shape:
        return False
    return all(
        p is None
        or (p.shape == normalized_shape and p.dtype == input.dtype and p.flags.c_contiguous)
        for p in parameters
    )


def _accepts_layer_norm(
    input: Any, normalized_shape: Dims, weight: Any, bias: Any, eps: Any
) -> bool:
    return is_dense(input, _LEAST) and _fits(input, normalized_shape, weight, bias)


def _accepts_rms_norm(input: Any, normalized_shape: Dims, weight: Any, eps: Any) -> bool:
    return is_dense(input, _LEAST) and _fits(input, normalized_shape, weight)


def _accepts_backward(grad: Any, input: Any, normalized_shape: Dims, weight: Any, eps: Any) -> bool:
    return (
        is_dense(input, _LEAST) and is_like(grad, input) and _fits(input, normalized_shape, weight)
    )


def _groups_fit(input: np.ndarray, num_groups: int, *parameters: Any) -> bool:
    return (
        input.ndim >= 2
        and num_groups >= 1
        and input.shape[1] % num_groups == 0
        and all(
            p is None
            or (p.shape == input.shape[1:2] and p.dtype == input.dtype and p.flags.c_contiguous)
            for p in parameters
        )
    )


def _accepts_group_norm(input: Any, num_groups: int, weight: Any, bias: Any, eps: Any) -> bool:
    return is_dense(input, _LEAST_GROUPS) and _groups_fit(input, num_groups, weight, bias)


def _accepts_group_norm_backward(
    grad: Any, input: Any, num_groups: int, weight: Any, eps: Any
) -> bool:
    return (
        is_dense(input, _LEAST_GROUPS)
        and is_like(grad, input)
        and _groups_fit(input, num_groups, weight)
    )


KERNELS: dict[str, Callable[..., Any]] = {
    "group_norm": group_norm,
    "group_norm_backward": group_norm_backward,
    "layer_norm": layer_norm,
    "layer_norm_backward": layer_norm_backward,
    "rms_norm": rms_norm,
    "rms_norm_backward": rms_norm_backward,
}
WHEN: dict[str, Callable[..., bool]] = {
    "group_norm": _accepts_group_norm,
    "group_norm_backward": _accepts_group_norm_backward,
    "layer_norm": _accepts_layer_norm,
    "layer_norm_backward": _accepts_backward,
    "rms_norm": _accepts_rms_norm,
    "rms_norm_backward": _accepts_backward,
}
LEAST: dict[str, int] = {
    name: _LEAST_GROUPS if name.startswith("group") else _LEAST for name in KERNELS
}
