"""Sliding windows: the geometry that convolution and pooling share, and windows made of ops.

Sizes follow PyTorch. Of ``n`` padded positions, windows of ``kernel`` positions spaced
``dilation`` apart, moved by ``stride``, fit ``(n - dilation * (kernel - 1) - 1) // stride + 1``
times; ``ceil_mode`` rounds up, as long as the last window starts inside the input.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError
from coredispatch.registry.model.sizes import as_int, is_int

__all__ = [
    "lowest",
    "pool_geometry",
    "spatial_tuple",
    "window_positions",
    "window_size",
    "windows",
]

Ints = tuple[int, ...]


def spatial_tuple(name: str, value: Any, n: int, *, least: int = 1) -> Ints:
    """``value`` once per spatial dimension. Raises :class:`ArgumentError` on a wrong count."""
    if type(value) is tuple and len(value) == n and min(value) >= least:
        return value  # nine calls in ten: this function is on the way of every convolution
    if type(value) is tuple and len(value) == 1 and type(value[0]) is int and value[0] >= least:
        return value * n
    if type(value) is int and value >= least:
        return (value,) * n
    if is_int(value):
        result = (value,) * n
    else:
        result = _listed(name, value)
        if len(result) == 1:
            result = result * n
    if len(result) != n:
        raise ArgumentError(
            f"{name}={result} does not fit {n} spatial dimensions",
            fix=f"give one int, or {n} of them",
        )
    if any(v < least for v in result):
        raise ArgumentError(f"{name}={result} is below {least}", fix=f"use at least {least}")
    return result


def _listed(name: str, value: Any) -> Ints:
    """``value`` as integers: one, if it is an integer of NumPy or a 0-dim tensor."""
    try:
        values = value if isinstance(value, (tuple, list)) else [operator.index(value)]
    except TypeError:
        values = value
    try:
        return tuple([as_int(v) for v in values])
    except TypeError:
        raise DTypeError(
            f"{name} must be an integer or a tuple of integers, not {value!r}",
            fix="round it first, for example with int(...)",
        ) from None


def window_size(
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Ints:
    """Number of windows in each dimension. Raises :class:`ShapeError` where none fits."""
    result = []
    for n, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        if room < 0:
            raise ShapeError(
                f"a window of {d * (k - 1) + 1} positions does not fit in size {n} padded by {p}",
                fix="use a larger input, more padding or a smaller kernel",
            )
        result.append(room // s + 1)
    return tuple(result)


def pool_geometry(
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[Ints, Ints]:
    """Output size of a pooling, and the padding behind that ``ceil_mode`` may enlarge.

    Raises :class:`ShapeError` where no window fits, :class:`ArgumentError` where a window could
    lie in the padding alone.
    """
    output, after = [], []
    for n, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True):
        span = d * (k - 1) + 1
        if 2 * p > span:
            raise ArgumentError(
                f"padding {p} is more than half of the window's {span} positions",
                fix="use a smaller padding",
            )
        room = n + 2 * p - span
        size = (room + s - 1 if ceil_mode else room) // s + 1
        if ceil_mode and (size - 1) * s >= n + p:
            size -= 1
        if size < 1:
            raise ShapeError(
                f"a window of {span} positions does not fit in size {n} padded by {p}",
                fix="use a larger input or a smaller kernel",
            )
        output.append(size)
        after.append(max(p, (size - 1) * s + span - n - p))
    return tuple(output), tuple(after)


def windows(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """View ``(*lead, *output, *kernel)`` of ``x`` of shape ``(*lead, *spatial)``."""
    n = len(kernel)
    lead = x.ndim - n
    for i, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = x.unfold(lead + i, d * (k - 1) + 1, s)
    if max(dilation) > 1:
        x = x[(..., *(slice(None, None, d) for d in dilation))]
    return x


def window_positions(
    like: Tensor,
    spatial: Sequence[int],
    starts: Sequence[Tensor],
    within: Sequence[Tensor],
    ends: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Flat positions ``(windows, elements)`` of every window, and which of them exist.

    Args:
        like: a tensor on the wanted device.
        spatial: the size of each dimension.
        starts: per dimension, the first position of each window (may be negative).
        within: per dimension, the offsets of a window's elements from its start.
        ends: per dimension, one past the last position of each window; ``spatial`` if None.

    Positions that do not exist are clamped to existing ones.
    """
    n = len(spatial)
    flat: Any = lazy.zeros((1,) * (2 * n), dtype="int64", device=like.device)
    valid: Any = flat == 0
    step = prod(spatial)
    for i in range(n):
        step //= max(spatial[i], 1)
        place = starts[i][:, None] + within[i][None, :]
        inside = (place >= 0) & (place < (spatial[i] if ends is None else ends[i][:, None]))
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = place.shape
        flat = flat + place.clamp(0, max(spatial[i] - 1, 0)).reshape(shape) * step
        valid = valid & inside.reshape(shape)
    windows_, elements = prod(flat.shape[:n]), prod(flat.shape[n:])
    return flat.reshape(windows_, elements), valid.reshape(windows_, elements)


def lowest(x: Tensor) -> Any:
    """The neutral element of a maximum in the dtype of ``x``."""
    dtype = x.dtype
    if dtype.kind == "f":
        return float("-inf")
    return -(1 << (8 * dtype.itemsize - 1)) if dtype.kind == "i" else 0
