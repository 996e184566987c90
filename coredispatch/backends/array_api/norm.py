"""Normalization over an array-API namespace, each operator in one kernel.

Their gradients come from the operators' decompositions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from coredispatch.backends.array_api.window_slices import widened

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The forward normalizations over ``xp``."""

    def standardize(x: Any, axis: Any, eps: float) -> Any:
        centered = x - xp.mean(x, axis=axis, keepdims=True)
        return centered / xp.sqrt(xp.mean(centered * centered, axis=axis, keepdims=True) + eps)

    def check(shape: tuple[int, ...], *affine: Any) -> None:
        if any(v is not None and tuple(v.shape) != shape for v in affine):
            raise ValueError(f"weight, bias and statistics must have shape {shape}")

    def affine(x: Any, weight: Any, bias: Any) -> Any:
        if weight is not None:
            x = x * weight
        return x if bias is None else x + bias

    def last_axes(x: Any, normalized_shape: Sequence[int]) -> tuple[int, ...]:
        n = len(normalized_shape)
        if n == 0 or tuple(x.shape[-n:]) != tuple(normalized_shape):
            raise ValueError(f"shape {tuple(x.shape)} does not end in {tuple(normalized_shape)}")
        return tuple(range(-n, 0))

    def by_channel(v: Any, ndim: int) -> Any:
        return None if v is None else xp.reshape(v, (-1, *(1,) * (ndim - 2)))

    def layer_norm(
        input: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float
    ) -> Any:
        check(tuple(normalized_shape), weight, bias)
        axis = last_axes(input, normalized_shape)
        result = affine(standardize(widened(xp, input), axis, eps), weight, bias)
        return xp.astype(result, input.dtype, copy=False)

    def group_norm(input: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
        check(tuple(input.shape[1:2]), weight, bias)
        batch, channels = input.shape[:2]
        if num_groups < 1 or channels % num_groups:
            raise ValueError(f"{channels} channels do not split into {num_groups} groups")
        rows = (batch, num_groups, channels // num_groups * prod(input.shape[2:]))
        normal = standardize(xp.reshape(widened(xp, input), rows), -1, eps)
        normal = xp.reshape(normal, tuple(input.shape))
        result = affine(normal, by_channel(weight, input.ndim), by_channel(bias, input.ndim))
        return xp.astype(result, input.dtype, copy=False)

    def batch_norm_train(input: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
        check(tuple(input.shape[1:2]), weight, bias)
        if prod((input.shape[0], *input.shape[2:])) < 2:
            raise ValueError("batch statistics need more than one value per channel")
        x, n = widened(xp, input), input.ndim
        axis = (0, *range(2, n))
        mean = xp.mean(x, axis=axis)
        centered = x - by_channel(mean, n)
        var = xp.mean(centered * centered, axis=axis)
        scale = 1 / xp.sqrt(var + eps)
        if weight is not None:
            scale = scale * weight
        result = affine(centered, by_channel(scale, n), by_channel(bias, n))
        return xp.astype(result, input.dtype, copy=False), mean, var

    def batch_norm_inference(
        input: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
    ) -> Any:
        check(tuple(input.shape[1:2]), mean, var, weight, bias)
        n = input.ndim
        scale = 1 / xp.sqrt(widened(xp, var) + eps)
        if weight is not None:
            scale = scale * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        result = affine(widened(xp, input), by_channel(scale, n), by_channel(shift, n))
        return xp.astype(result, input.dtype, copy=False)

    return {
        "layer_norm": layer_norm,
        "group_norm": group_norm,
        "batch_norm_train": batch_norm_train,
        "batch_norm_inference": batch_norm_inference,
    }
