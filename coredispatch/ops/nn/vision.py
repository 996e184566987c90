"""Resampling and rearranging of images: interpolate, pixel and channel shuffles, unfold, fold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import floor, prod
from typing import Any

import numpy as np

from coredispatch.ops.nn.backward_reference import col2im_reference, col2im_samples
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import dot, exact, require_one_of
from coredispatch.ops.support.samples import Sample
from coredispatch.ops.support.windows import Ints, spatial_tuple, window_positions, windows
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import float32, int64
from coredispatch.registry.model.errors import ArgumentError, ShapeError
from coredispatch.registry.model.scalars import integer_range
from coredispatch.registry.model.value import dtype_of

# ---- interpolate ------------------------------------------------------------------------------

_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}
#: modes that weigh elements, and the spatial dimensions they take
_SMOOTH = {**_LINEAR, "bicubic": 2}
_MODES = ("nearest", "nearest-exact", *_SMOOTH, "area")
_CUBIC = -0.75  # the slope at distance 1, in Keys, "Cubic convolution interpolation", 1981


def _new_sizes(input: Any, size: Any, scale_factor: Any) -> tuple[Ints, list[float | None]]:
    """Output sizes, and the scale factors where they were given."""
    spatial = tuple(input.shape[2:])
    n = len(spatial)
    if (size is None) == (scale_factor is None):
        raise ArgumentError("one of size and scale_factor is needed", fix="give exactly one")
    if size is not None:
        return spatial_tuple("size", size, n), [None] * n
    factors = (scale_factor,) * n if isinstance(scale_factor, (int, float)) else tuple(scale_factor)
    if len(factors) != n:
        raise ArgumentError(
            f"scale_factor={factors} does not fit {n} spatial dimensions",
            fix=f"give one number, or {n} of them",
        )
    return tuple(floor(s * f) for s, f in zip(spatial, factors)), [float(f) for f in factors]


def _ratio(source: int, target: int, factor: float | None) -> float:
    """Input positions per output position."""
    return 1 / factor if factor else source / target


def _nearest_positions(source: int, target: int, factor: float | None, exact_: bool) -> Any:
    ratio = _ratio(source, target, factor)
    place = np.arange(target) + (0.5 if exact_ else 0.0)
    # PyTorch computes the position in single precision.
    scaled = np.floor((place.astype(np.float32) * np.float32(ratio)).astype(np.float64))
    return np.minimum(scaled.astype(np.int64), source - 1)


def _linear_positions(
    source: int, target: int, factor: float | None, align_corners: bool
) -> tuple[Any, Any, Any]:
    """Lower and upper input position of each output position, and the upper one's weight."""
    place = np.arange(target, dtype=np.float64)
    if align_corners:
        at = place * ((source - 1) / (target - 1)) if target > 1 else place * 0
    else:
        at = np.maximum((place + 0.5) * _ratio(source, target, factor) - 0.5, 0)
    low = np.minimum(at.astype(np.int64), source - 1)
    return low, np.minimum(low + 1, source - 1), at - low


def _cubic_matrix(source: int, target: int, factor: float | None, align_corners: bool) -> Any:
    """The share of each input position, by row, in each output position."""
    matrix = np.zeros((source, target))
    for j in range(target):
        if align_corners:
            at = j * (source - 1) / (target - 1) if target > 1 else 0.0
        else:
            at = (j + 0.5) * _ratio(source, target, factor) - 0.5
        for i in range(floor(at) - 1, floor(at) + 3):
            d = abs(at - i)
            near = ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1
            far = _CUBIC * (((d - 5) * d + 8) * d - 4)
            matrix[min(max(i, 0), source - 1), j] += near if d <= 1 else far
    return matrix


def _interpolate_reference(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:
    """Dimension by dimension."""
    sizes, factors = _new_sizes(input, size, scale_factor)
    if recompute_scale_factor:
        factors = [None] * len(sizes)
    x = input
    for i, (target, factor) in enumerate(zip(sizes, factors), 2):
        source = x.shape[i]
        if mode == "area":
            cuts = np.arange(target + 1) * source / target
            spans = [(int(a), int(np.ceil(b))) for a, b in itertools.pairwise(cuts)]
            x = np.stack([x.take(range(a, b), i).mean(i) for a, b in spans], i)
        elif mode == "bicubic":
            x = np.moveaxis(
                np.moveaxis(x, i, -1) @ _cubic_matrix(source, target, factor, bool(align_corners)),
                -1,
                i,
            )
        elif mode in _LINEAR:
            low, high, share = _linear_positions(x.shape[i], target, factor, bool(align_corners))
            share = share.reshape(-1, *(1,) * (x.ndim - i - 1))
            x = x.take(low, i) * (1 - share) + x.take(high, i) * share
        else:
            exact_ = mode == "nearest-exact"
            x = x.take(_nearest_positions(x.shape[i], target, factor, exact_), i)
    return x


def _interpolate_samples(make: Any) -> Iterator[Sample]:
    """Up and down, by size and by factor, in every mode."""
    image = (2, 3, 4, 5)
    for size in ((8, 10), (3, 2), 6):
        yield Sample(make(image), size)
        yield Sample(make(image), size, mode="nearest-exact")
        yield Sample(make(image), size, mode="bilinear")
        yield Sample(make(image), size, mode="bilinear", align_corners=True)
        yield Sample(make(image), size, mode="bicubic")
        yield Sample(make(image), size, mode="bicubic", align_corners=True)
        yield Sample(make(image), size, mode="area")
    yield Sample(make(image), None, 2)
    yield Sample(make(image), None, (1.5, 0.5), mode="bilinear")
    yield Sample(make((2, 3, 5)), 7, mode="linear")
    yield Sample(make((1, 2, 3, 4, 2)), 5, mode="trilinear")


@composite(
    reference=_interpolate_reference,
    samples=_interpolate_samples,
    dtypes="float",
    namespace="nn.functional",
)
def interpolate(
    input: Tensor,
    size: object = None,
    scale_factor: object = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resample the spatial dimensions of ``(N, C, *spatial)`` to ``size`` or by ``scale_factor``.

    Modes are ``nearest``, ``nearest-exact``, ``area`` (the means of :func:`adaptive_avg_pool2d`),
    ``linear``, ``bilinear`` or ``trilinear`` for one, two or three spatial dimensions, and
    ``bicubic`` for two. ``align_corners`` (linear and cubic modes) makes the corner elements'
    centres coincide, else the images' edges. Raises ``ArgumentError`` for other modes, for
    ``antialias=True``, and unless exactly one of ``size`` and ``scale_factor`` is given.
    """
    require_one_of("mode", mode, _MODES)
    n = input.ndim - 2
    if n < 1 or _SMOOTH.get(mode, n) != n or (mode == "area" and n > 3):
        raise ShapeError(
            f"mode {mode!r} does not take a {input.ndim}-d input", fix="use (N, C, *spatial)"
        )
    if antialias:
        raise ArgumentError("antialias=True is not available", fix="smooth the input first")
    if align_corners is not None and mode not in _SMOOTH:
        raise ArgumentError(
            f"mode {mode!r} does not take align_corners", fix="use a linear mode, or 'bicubic'"
        )
    sizes, factors = _new_sizes(input, size, scale_factor)
    if min(sizes) < 1 or 0 in input.shape[2:]:
        raise ShapeError(
            f"the output of an input of shape {tuple(input.shape)} would have size {sizes}",
            fix="only the batch and the channels may be empty",
        )
    if recompute_scale_factor:
        factors = [None] * n
    if mode == "area":
        return lazy.adaptive_avg_pool(input, sizes)
    integers = dtype_of(input).category < 2
    x = input
    if mode in _SMOOTH:
        x = input.to(float32) if integers else wide(input)
    dims = list(enumerate(zip(sizes, factors), 2))
    for i, (target, factor) in reversed(dims) if integers else dims:
        x = _resampled(x, i, target, factor, mode, bool(align_corners))
        if integers and mode in _SMOOTH:
            # As in PyTorch pixels round to the nearest after each dimension, the last one first; a
            # cubic leaves the range at edges.
            x = (x + 0.5).floor().clamp(*integer_range(dtype_of(input)))
    return narrow(x, input)


def _resampled(
    x: Tensor, dim: int, target: int, factor: float | None, mode: str, align_corners: bool
) -> Tensor:
    """One dimension of :func:`interpolate`."""
    source = x.shape[dim]
    if mode not in _SMOOTH:
        # PyTorch computes the position in single precision whatever the dtype.
        place = lazy.arange(target, dtype="float32", device=x.device)
        if mode == "nearest-exact":
            place = place + 0.5
        at = (place * _ratio(source, target, factor)).floor().to(int64)
        return x.index_select(dim, at.clamp_max(source - 1))
    place = lazy.arange(target, dtype=x.dtype, device=x.device)
    if align_corners:
        # One rounding less than a multiplication by the ratio.
        at = place * (source - 1) / max(target - 1, 1)
    else:
        at = (place + 0.5) * _ratio(source, target, factor) - 0.5
    trailing = (1,) * (x.ndim - dim - 1)
    if mode == "bicubic":
        return _cubic(x, dim, at, trailing)
    at = at.clamp_min(0)
    low = at.floor().to(int64).clamp_max(source - 1)
    share = (at - low.to(x.dtype)).reshape(-1, *trailing)
    lower = x.index_select(dim, low)
    upper = x.index_select(dim, (low + 1).clamp_max(source - 1))
    return lower * (1 - share) + upper * share


def _cubic(x: Tensor, dim: int, at: Tensor, trailing: tuple[int, ...]) -> Tensor:
    """Cubic convolution of the four elements around each position ``at``; edges are repeated."""
    low = at.floor()
    share = (at - low).reshape(-1, *trailing)
    total: Any = 0
    for offset in range(-1, 3):
        distance = share + 1 if offset == -1 else share if offset == 0 else offset - share
        if offset in (0, 1):
            weight = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1
        else:
            weight = (((distance - 5) * distance + 8) * distance - 4) * _CUBIC
        places = (low.to(int64) + offset).clamp(0, x.shape[dim] - 1)
        total = x.index_select(dim, places) * weight + total
    return total


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
