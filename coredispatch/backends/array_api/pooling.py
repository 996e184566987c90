"""Pooling over an array-API namespace: one slice per window position and axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from coredispatch.backends.array_api.window_slices import pad, widened
from coredispatch.registry.model.dtypes import DType, bool_

__all__ = ["kernels"]

Ints = Sequence[int]


def _geometry(
    spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[list[int], list[int]]:
    """Output size, and the padding needed behind; ``ValueError`` where no window fits."""
    output, after = [], []
    for n, k, s, p, d in zip(spatial, kernel, stride, padding, dilation):
        span = d * (k - 1) + 1
        room = n + 2 * p - span
        size = (room + s - 1 if ceil_mode else room) // s + 1
        if ceil_mode and (size - 1) * s >= n + p:
            size -= 1
        if size < 1 or 2 * p > span:
            raise ValueError(f"window {k}, padding {p} does not suit size {n}")
        output.append(size)
        after.append(max(p, (size - 1) * s + span - n - p))
    return output, after


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """``max_pool`` and ``avg_pool`` over ``xp``; their gradients are left to the decompositions."""

    def over_axes(
        combine: Any, x: Any, kernel: Ints, stride: Ints, dilation: Ints, output: Ints
    ) -> Any:
        """``combine`` all elements of each window, one axis after the other."""
        n = len(kernel)
        for i in range(n):
            lead = (slice(None),) * (x.ndim - n + i)
            total = None
            for j in range(kernel[i]):
                start = j * dilation[i]
                stop = start + (output[i] - 1) * stride[i] + 1
                piece = x[(*lead, slice(start, stop, stride[i]), ...)]
                total = piece if total is None else combine(total, piece)
            x = total
        return x

    def lowest(dtype: Any) -> Any:
        known = DType.of(dtype)
        if known is bool_:
            return False
        return -xp.inf if known.is_floating_point else xp.iinfo(dtype).min

    def max_pool(
        input: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
    ) -> Any:
        spatial = input.shape[-len(kernel_size) :]
        output, after = _geometry(spatial, kernel_size, stride, padding, dilation, ceil_mode)
        x = input
        if any(padding) or any(after):
            x = pad(xp, x, padding, after, lowest(x.dtype))
        truth = DType.of(x.dtype) is bool_
        combine = xp.logical_or if truth else xp.maximum
        result = over_axes(combine, x, kernel_size, stride, dilation, output)
        return result if prod(kernel_size) > 1 else xp.asarray(result, copy=True)

    def avg_pool(
        input: Any,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Any:
        n = len(kernel_size)
        spatial, ones = input.shape[-n:], (1,) * n
        output, after = _geometry(spatial, kernel_size, stride, padding, ones, ceil_mode)
        x = pad(xp, widened(xp, input), padding, after)
        total = over_axes(xp.add, x, kernel_size, stride, ones, output)
        if divisor_override:
            return xp.astype(total / divisor_override, input.dtype)
        # How many elements a window has: the same sum over ones.
        counted = xp.ones(tuple(spatial), dtype=x.dtype)
        counted = pad(xp, counted, padding, padding, 1 if count_include_pad else 0)
        counted = pad(xp, counted, (0,) * n, [a - p for a, p in zip(after, padding)])
        count = over_axes(xp.add, counted, kernel_size, stride, ones, output)
        return xp.astype(total / count, input.dtype)

    return {"max_pool": max_pool, "avg_pool": avg_pool}
