"""The affine map over an array-API namespace."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from coredispatch.backends.array_api.window_slices import widened

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """``linear`` and its weight gradient over ``xp``."""

    def linear(input: Any, weight: Any, bias: Any) -> Any:
        x, w = widened(xp, input), widened(xp, weight)
        if bias is not None and bias.ndim and tuple(bias.shape) != tuple(w.shape[:-1]):
            raise ValueError(f"bias of shape {bias.shape} for a weight of shape {w.shape}")
        result = xp.matmul(x, xp.matrix_transpose(w) if w.ndim == 2 else w)
        if bias is not None:
            result = result + bias
        return xp.astype(result, input.dtype, copy=False)

    def linear_weight_grad(grad_output: Any, input: Any) -> Any:
        rows = prod(input.shape[:-1])
        g = xp.reshape(widened(xp, grad_output), (rows, grad_output.shape[-1]))
        x = xp.reshape(widened(xp, input), (rows, input.shape[-1]))
        return xp.astype(xp.matmul(xp.matrix_transpose(g), x), input.dtype, copy=False)

    return {"linear": linear, "linear_weight_grad": linear_weight_grad}
