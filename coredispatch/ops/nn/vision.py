"""Rearranging of images: pixel and channel shuffles, unfold, fold."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from coredispatch.ops.nn.backward_reference import col2im_reference, col2im_samples
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import dot, exact
from coredispatch.ops.support.samples import Sample
from coredispatch.ops.support.windows import spatial_tuple, window_positions, windows
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ShapeError

# ---- shuffles ---------------------------------------------------------------------------------


def _shuffle_reference(input: Any, upscale_factor: Any) -> Any:
    """Channels to positions within each pixel."""
    r = upscale_factor
    *lead, c, h, w = input.shape
    x = input.reshape(*lead, c // r**2, r, r, h, w)
    n = len(lead)
    x = x.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return x.reshape(*lead, c // r**2, h * r, w * r)


def _unshuffle_reference(input: Any, downscale_factor: Any) -> Any:
    """Positions within each block to channels."""
    r = downscale_factor
    *lead, c, h, w = input.shape
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    n = len(lead)
    x = x.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return x.reshape(*lead, c * r**2, h // r, w // r)


# A permutation that changes nothing leaves a view, as reshape does.
_SHUFFLE: dict[str, Any] = {
    "tolerance": exact,
    "view": "maybe",
    "namespace": ("nn.functional", ""),
}


@composite(
    reference=_shuffle_reference,
    samples=lambda make: (Sample(make((*lead, 8, 3, 2)), 2) for lead in ((), (2,), (1, 2))),
    **_SHUFFLE,
)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """``(*, C * r^2, H, W)`` to ``(*, C, H * r, W * r)``.

    Raises ``ShapeError`` unless ``r^2`` divides the channels. Shi et al., 2016.
    """
    r = upscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ShapeError(
            f"an input of shape {tuple(input.shape)} does not fit upscale_factor={r}",
            fix="use (*, C * r^2, H, W)",
        )
    *lead, c, h, w = input.shape
    n = len(lead)
    x = input.reshape(*lead, c // (r * r), r, r, h, w)
    x = x.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return x.reshape(*lead, c // (r * r), h * r, w * r)


@composite(
    reference=_unshuffle_reference,
    samples=lambda make: (Sample(make((*lead, 2, 6, 4)), 2) for lead in ((), (2,), (1, 2))),
    **_SHUFFLE,
)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """``(*, C, H * r, W * r)`` to ``(*, C * r^2, H, W)``; the inverse of :func:`pixel_shuffle`."""
    r = downscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-1] % r or input.shape[-2] % r:
        raise ShapeError(
            f"an input of shape {tuple(input.shape)} does not fit downscale_factor={r}",
            fix="use (*, C, H * r, W * r)",
        )
    *lead, c, h, w = input.shape
    n = len(lead)
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    x = x.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return x.reshape(*lead, c * r * r, h // r, w // r)


@composite(
    reference=lambda input, groups: (
        input.reshape(input.shape[0], groups, -1, *input.shape[2:])
        .swapaxes(1, 2)
        .reshape(input.shape)
    ),
    samples=lambda make: (Sample(make((2, 6, *rest)), 3) for rest in ((4,), (2, 3))),
    **_SHUFFLE,
)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave the groups of channels of ``(N, C, *)``. Zhang et al., "ShuffleNet", 2018."""
    if input.ndim < 3 or groups < 1 or input.shape[1] % groups:
        raise ShapeError(
            f"an input of shape {tuple(input.shape)} does not fit {groups} groups",
            fix="use a divisor of the channels",
        )
    x = input.reshape(input.shape[0], groups, input.shape[1] // groups, *input.shape[2:])
    return x.transpose(1, 2).reshape(input.shape)


# ---- columns ----------------------------------------------------------------------------------


def _unfold_reference(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """One column per window."""
    k, d, s = (spatial_tuple("", v, 2) for v in (kernel_size, dilation, stride))
    p = spatial_tuple("", padding, 2, least=0)
    lead = ((0, 0),) * (input.ndim - 2)
    x = np.pad(input, (*lead, *((a, a) for a in p)))
    view = np.lib.stride_tricks.sliding_window_view(
        x, [b * (a - 1) + 1 for a, b in zip(k, d)], (-2, -1)
    )
    view = view[..., :: s[0], :: s[1], :, :][..., :: d[0], :: d[1]]
    columns = np.moveaxis(view, (-2, -1), (-4, -3))
    head = input.shape[:-3]
    return columns.reshape(*head, input.shape[-3] * prod(k), -1)


@composite(
    name="im2col",
    reference=_unfold_reference,
    samples=lambda make: (
        Sample(make((2, 3, 6, 5)), *options)
        for options in (((3, 2),), (2, 1, 1, 2), ((2, 3), 2, (1, 0), 1))
    ),
    tolerance=exact,
    view="maybe",
    namespace=(),
)
def im2col(
    input: Tensor,
    kernel_size: IntList,
    dilation: IntList = 1,
    padding: IntList = 0,
    stride: IntList = 1,
) -> Tensor:
    """``nn.functional.unfold``: each window of ``(N, C, H, W)`` as a column, ``(N, C * K, L)``."""
    k = spatial_tuple("kernel_size", kernel_size, 2)
    d, s = spatial_tuple("dilation", dilation, 2), spatial_tuple("stride", stride, 2)
    p = spatial_tuple("padding", padding, 2, least=0)
    if input.ndim not in (3, 4):
        raise ShapeError(
            f"the input must have 3 or 4 dimensions, and has {input.ndim}",
            fix="use (N, C, H, W) or (C, H, W)",
        )
    x = lazy.pad(input, (p[1], p[1], p[0], p[0])) if any(p) else input
    w = windows(x, k, s, d)
    n = w.ndim
    columns = w.permute(*range(n - 4), n - 2, n - 1, n - 4, n - 3)
    return columns.reshape(*input.shape[:-3], input.shape[-3] * prod(k), prod(w.shape[-4:-2]))


@im2col.vjp
def _(grad, input_shape, kernel_size, dilation, padding, stride):
    return col2im(grad, tuple(input_shape[-2:]), kernel_size, dilation, padding, stride)


@composite(
    reference=col2im_reference,
    samples=col2im_samples,
    dtypes="float",
    tolerance=dot,
    namespace=(),
)
def col2im(
    input: Tensor,
    output_size: IntList,
    kernel_size: IntList,
    dilation: IntList = 1,
    padding: IntList = 0,
    stride: IntList = 1,
) -> Tensor:
    """``nn.functional.fold``: columns ``(N, C * K, L)`` added into ``(N, C, H, W)``.

    The adjoint of :func:`im2col`. Raises ``ShapeError`` where the columns do not fit.
    """
    size = spatial_tuple("output_size", output_size, 2)
    k = spatial_tuple("kernel_size", kernel_size, 2)
    d, s = spatial_tuple("dilation", dilation, 2), spatial_tuple("stride", stride, 2)
    p = spatial_tuple("padding", padding, 2, least=0)
    places = tuple(
        (n + 2 * a - b * (c - 1) - 1) // e + 1 for n, a, b, c, e in zip(size, p, d, k, s)
    )
    batched = input.ndim == 3
    x = input if batched else input.unsqueeze(0)
    if x.ndim != 3 or x.shape[1] % prod(k) or x.shape[2] != prod(places):
        raise ShapeError(
            f"columns of shape {tuple(input.shape)} do not fit windows {k} at {places} places",
            fix=f"use (N, C * {prod(k)}, {prod(places)})",
        )
    channels = x.shape[1] // prod(k)
    at = x.device
    starts = [lazy.arange(o, device=at) * e - a for o, e, a in zip(places, s, p)]
    within = [lazy.arange(c, device=at) * b for c, b in zip(k, d)]
    flat, valid = window_positions(x, size, starts, within)
    # (windows, elements) per plane; what lies in the padding is dropped
    parts = x.reshape(x.shape[0] * channels, prod(k), prod(places)).mT
    parts = parts.masked_fill(~valid, 0).reshape(x.shape[0] * channels, flat.numel())
    total = x.new_zeros((x.shape[0] * channels, prod(size)))
    result = total.index_add(1, flat.reshape(-1), parts).reshape(x.shape[0], channels, *size)
    return result if batched else result.squeeze(0)


@col2im.vjp
def _(grad, kernel_size, dilation, padding, stride):
    return im2col(grad, kernel_size, dilation, padding, stride)
