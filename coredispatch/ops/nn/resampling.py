"""Resampling of images: interpolate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import floor
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import require_one_of, same
from coredispatch.ops.support.samples import Sample
from coredispatch.ops.support.windows import Ints, spatial_tuple
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import float32, int64
from coredispatch.registry.model.errors import (
    ArgumentError,
    ModeError,
    ShapeError,
    UnsupportedShapeError,
)
from coredispatch.registry.model.scalars import integer_range
from coredispatch.registry.model.value import dtype_of

_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}
#: modes that weigh elements, and the spatial dimensions they take
_SMOOTH = {**_LINEAR, "bicubic": 2, "lanczos": 2}
#: how many input positions a filter of ``antialias`` reaches to each side
_REACH = {"bilinear": 1, "bicubic": 2, "lanczos": 3}
_MODES = ("nearest", "nearest-exact", *_SMOOTH, "area")
_SMOOTH_CUBIC = -0.5  # the slope with antialias, as in Pillow
_CUBIC = -0.75  # the slope at distance 1, in Keys, "Cubic convolution interpolation", 1981


def _new_sizes(shape: Any, size: Any, scale_factor: Any) -> tuple[Ints, list[float | None]]:
    """Output sizes, and the scale factors where they were given."""
    spatial = tuple(shape[2:])
    n = len(spatial)
    if (size is None) == (scale_factor is None):
        raise ArgumentError("one of size and scale_factor is needed", fix="give exactly one")
    if isinstance(size, (tuple, list)) and len(size) != n:
        raise ArgumentError(
            f"size={tuple(size)} does not fit {n} spatial dimensions",
            fix=f"give one number, or {n} of them",
        )
    if size is not None:
        size = list(size) if isinstance(size, tuple) else size  # whose numbers are then looked at
        return spatial_tuple("size", size, n), [None] * n
    several = isinstance(scale_factor, (tuple, list))
    factors = tuple(scale_factor) if several else (scale_factor,) * n
    if len(factors) != n:
        raise ArgumentError(
            f"scale_factor={factors} does not fit {n} spatial dimensions",
            fix=f"give one number, or {n} of them",
        )
    factors = tuple([float(f) for f in factors])
    return tuple(_scaled(s, f) for s, f in zip(spatial, factors)), list(factors)


def _scaled(size: int, factor: float) -> int:
    # An open size times an int is an expression that most rules know.
    return size * int(factor) if factor.is_integer() else floor(size * factor)


def _ratio(source: int, target: int, factor: float | None) -> float:
    """Input positions per output position."""
    return 1 / factor if factor else source / target


def _nearest_positions(source: int, target: int, factor: float | None, exact_: bool) -> Any:
    ratio = _ratio(source, target, factor)
    place = np.arange(target) + (0.5 if exact_ else 0.0)
    # PyTorch computes the position in single precision.
    scaled = np.floor((place.astype(np.float32) * np.float32(ratio)).astype(np.float64))
    return np.minimum(scaled.astype(np.int64), source - 1)


def _computed_in(x: Any) -> Any:
    """The dtype of positions: that of a single-precision input, whose last units are its own."""
    return np.float32 if x.dtype == np.float32 else np.float64


def _linear_positions(
    x: Any, dim: int, target: int, factor: float | None, align_corners: bool
) -> tuple[Any, Any, Any]:
    """Lower and upper input position of each output position, and the upper one's weight."""
    source, dtype = x.shape[dim], _computed_in(x)
    place = np.arange(target, dtype=dtype)
    if align_corners:
        at = place * dtype((source - 1) / (target - 1)) if target > 1 else place * dtype(0)
    else:
        at = np.maximum((place + dtype(0.5)) * dtype(_ratio(source, target, factor)) - 0.5, 0)
    low = np.minimum(at.astype(np.int64), source - 1)
    return low, np.minimum(low + 1, source - 1), at - low


def _cubic_matrix(x: Any, dim: int, target: int, factor: float | None, align_corners: bool) -> Any:
    """The share of each input position, by row, in each output position."""
    source, dtype = x.shape[dim], _computed_in(x)
    matrix = np.zeros((source, target), dtype)
    for j in range(target):
        if align_corners:
            at = j * (source - 1) / (target - 1) if target > 1 else 0.0
        else:
            at = (j + 0.5) * _ratio(source, target, factor) - 0.5
        at = float(dtype(at))
        for i in range(floor(at) - 1, floor(at) + 3):
            d = abs(at - i)
            near = ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1
            far = _CUBIC * (((d - 5) * d + 8) * d - 4)
            matrix[min(max(i, 0), source - 1), j] += near if d <= 1 else far
    return matrix


def _filter_matrix(
    source: int, target: int, factor: float | None, align_corners: bool, mode: str
) -> Any:
    """The share of each input position, by column, in each output position: a wide filter."""
    if align_corners:
        scale = (source - 1) / (target - 1) if target > 1 else 0.0
    else:
        scale = _ratio(source, target, factor)
    wide_ = max(scale, 1.0)
    reach = _REACH[mode] * wide_
    matrix = np.zeros((target, source))
    for j in range(target):
        centre = scale * (j + 0.5)
        for i in range(max(int(centre - reach + 0.5), 0), min(int(centre + reach + 0.5), source)):
            d = abs(i - centre + 0.5) / wide_
            if mode == "bilinear":
                matrix[j, i] = max(1 - d, 0)
            elif mode == "lanczos":
                matrix[j, i] = np.sinc(d) * np.sinc(d / 3) if d < 3 else 0.0
            elif d < 1:
                matrix[j, i] = ((_SMOOTH_CUBIC + 2) * d - (_SMOOTH_CUBIC + 3)) * d * d + 1
            elif d < 2:
                matrix[j, i] = (((d - 5) * d + 8) * d - 4) * _SMOOTH_CUBIC
    return matrix / matrix.sum(1, keepdims=True)


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
    sizes, factors = _new_sizes(input.shape, size, scale_factor)
    if recompute_scale_factor:
        factors = [None] * len(sizes)
    x = input
    for i, (target, factor) in enumerate(zip(sizes, factors), 2):
        source = x.shape[i]
        if antialias:
            shares = _filter_matrix(source, target, factor, bool(align_corners), mode)
            x = np.moveaxis(np.moveaxis(x, i, -1) @ shares.T, -1, i)
        elif mode == "area":
            cuts = np.arange(target + 1) * source / target
            spans = [(int(a), int(np.ceil(b))) for a, b in itertools.pairwise(cuts)]
            x = np.stack([x.take(range(a, b), i).mean(i) for a, b in spans], i)
        elif mode == "bicubic":
            x = np.moveaxis(
                np.moveaxis(x, i, -1) @ _cubic_matrix(x, i, target, factor, bool(align_corners)),
                -1,
                i,
            )
        elif mode in _LINEAR:
            low, high, share = _linear_positions(x, i, target, factor, bool(align_corners))
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
        yield Sample(make(image), size, mode="bilinear", antialias=True)
        yield Sample(make(image), size, mode="bicubic", antialias=True)
        yield Sample(make(image), size, mode="lanczos", antialias=True)
    yield Sample(make(image), None, 2)
    yield Sample(make(image), None, (1.5, 0.5), mode="bilinear")
    yield Sample(make((2, 3, 5)), 7, mode="linear")
    yield Sample(make((1, 2, 3, 4, 2)), 5, mode="trilinear")


@composite(
    reference=_interpolate_reference,
    samples=_interpolate_samples,
    takes="real",
    dtypes="float",
    namespace="nn.functional",
    cast="float32_accelerated",
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
    centres coincide, else the images' edges. ``antialias`` (``bilinear`` and ``bicubic``) widens
    the filter where the image shrinks, as Pillow does; ``lanczos`` (for two dimensions, three
    lobes of a windowed sinc) is always such a filter. Raises ``ArgumentError`` for other modes,
    and unless exactly one of ``size`` and ``scale_factor`` is given.
    """
    require_one_of("mode", mode, _MODES, ModeError)
    n = input.ndim - 2
    if n < 1 or _SMOOTH.get(mode, n) != n or (mode == "area" and n > 3):
        raise UnsupportedShapeError(
            f"mode {mode!r} does not take a {input.ndim}-d input", fix="use (N, C, *spatial)"
        )
    if antialias and mode not in _REACH:
        raise ArgumentError(
            f"antialias does not go with mode {mode!r}",
            fix="use 'bilinear', 'bicubic' or 'lanczos'",
        )
    if mode == "lanczos" and (align_corners or not antialias):
        raise ArgumentError(
            f"mode 'lanczos' with antialias={antialias} and align_corners={align_corners}",
            fix="use antialias=True, and leave align_corners out",
        )
    if align_corners is not None and mode not in _SMOOTH:
        raise ArgumentError(
            f"mode {mode!r} does not take align_corners", fix="use a linear mode, or 'bicubic'"
        )
    sizes, factors = _new_sizes(input.shape, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise ArgumentError(
            f"recompute_scale_factor has no meaning with size={size}", fix="give scale_factor"
        )
    if any(n < 1 for n in sizes) or 0 in input.shape[2:]:
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
        if antialias:
            x = _filtered(x, i, target, factor, mode, bool(align_corners))
        else:
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
    total: Any = None
    for places, share in _taps(x, x.shape[dim], target, factor, mode, align_corners):
        term = x.index_select(dim, places)
        if share is not None:
            term = term * _along(share, x, dim)
        total = term if total is None else term + total
    return total


def _along(share: Tensor, x: Tensor, dim: int) -> Tensor:
    """Numbers for the places of dimension ``dim``, shaped to broadcast against ``x``."""
    return share.reshape(-1, *(1,) * (x.ndim - dim - 1))


def _taps(
    x: Tensor, source: int, target: int, factor: float | None, mode: str, align_corners: bool
) -> list[tuple[Tensor, Tensor | None]]:
    """The elements that each new one is made of: their places, and what they are multiplied by.

    ``x`` gives the dtype and the device.
    """
    if mode not in _SMOOTH:
        # PyTorch computes the position in single precision whatever the dtype.
        place = lazy.arange(target, dtype="float32", device=x.device)
        if mode == "nearest-exact":
            place = place + 0.5
        at = (place * _ratio(source, target, factor)).floor().to(int64)
        return [(at.clamp_max(source - 1), None)]
    place = lazy.arange(target, dtype=x.dtype, device=x.device)
    if align_corners:
        # One rounding less than a multiplication by the ratio.
        at = place * (source - 1) / max(target - 1, 1)
    else:
        at = (place + 0.5) * _ratio(source, target, factor) - 0.5
    if mode == "bicubic":
        return _cubic_taps(source, at)
    at = at.clamp_min(0)
    low = at.floor().to(int64).clamp_max(source - 1)
    share = at - low.to(x.dtype)
    return [(low, 1 - share), ((low + 1).clamp_max(source - 1), share)]


def _cubic_taps(source: int, at: Tensor) -> list[tuple[Tensor, Tensor | None]]:
    """Cubic convolution of the four elements around each position ``at``; edges are repeated."""
    low = at.floor()
    share = at - low
    taps: list[tuple[Tensor, Tensor | None]] = []
    for offset in range(-1, 3):
        distance = share + 1 if offset == -1 else share if offset == 0 else offset - share
        if offset in (0, 1):
            weight = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1
        else:
            weight = (((distance - 5) * distance + 8) * distance - 4) * _CUBIC
        taps.append(((low.to(int64) + offset).clamp(0, source - 1), weight))
    return taps


def _filtered(
    x: Tensor, dim: int, target: int, factor: float | None, mode: str, align_corners: bool
) -> Tensor:
    """One dimension of :func:`interpolate` with ``antialias``: a product with the filter."""
    shares = _filter(x, x.shape[dim], target, factor, mode, align_corners)
    return _multiplied(x, dim, shares.mT)


def _multiplied(x: Tensor, dim: int, matrix: Tensor) -> Tensor:
    """``x @ matrix`` along ``dim``: rows of a tensor of its own, not a view of one."""
    if dim == x.ndim - 1:
        return x.matmul(matrix)
    return x.transpose(dim, -1).matmul(matrix).transpose(dim, -1).contiguous()


def _filter(
    x: Tensor, source: int, target: int, factor: float | None, mode: str, align_corners: bool
) -> Tensor:
    """The share of each input position, by column, in each output position.

    ``x`` gives the dtype and the device.
    """
    if align_corners:
        scale = (source - 1) / (target - 1) if target > 1 else 0.0
    else:
        scale = _ratio(source, target, factor)
    wide_ = max(scale, 1.0)
    reach = _REACH[mode] * wide_
    where = {"dtype": x.dtype, "device": x.device}
    centre = ((lazy.arange(target, **where) + 0.5) * scale).unsqueeze(1)
    place = lazy.arange(source, **where)
    first = (centre - reach + 0.5).trunc().clamp_min(0)
    last = (centre + reach + 0.5).trunc().clamp_max(source)
    d = (place - centre + 0.5).abs() / wide_
    if mode == "bilinear":
        shares = (1 - d).clamp_min(0)
    elif mode == "lanczos":
        shares = (lazy.sinc(d) * lazy.sinc(d / 3)).masked_fill(d >= 3, 0)
    else:
        a = _SMOOTH_CUBIC
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = (((d - 5) * d + 8) * d - 4) * a
        shares = lazy.where(d < 1, near, far.masked_fill(d >= 2, 0))
    shares = shares.masked_fill((place < first) | (place >= last), 0)
    return shares / shares.sum(1, True)


@interpolate.vjp
def _(
    grad, input_shape, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
):
    options = size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
    return interpolate_backward(grad, input_shape, *options)


def _backward_shape(grad_output: Any, input_shape: Any, size: Any, factor: Any, *_: Any) -> Ints:
    wanted = (*input_shape[:2], *_new_sizes(input_shape, size, factor)[0])
    if tuple(grad_output.shape) != wanted:
        raise ShapeError(
            f"a gradient of shape {tuple(grad_output.shape)} does not fit a result of shape "
            f"{wanted}",
            fix="give the gradient of the resampled images",
        )
    return tuple(input_shape)


def _backward_reference(grad_output: Any, input_shape: Any, *options: Any) -> Any:
    """The products with the matrix of the resampling, whose columns are the images of units."""
    x = grad_output
    sizes, factors = _new_sizes(input_shape, *options[:2])
    for i, (source, target, factor) in enumerate(zip(input_shape[2:], sizes, factors), 2):
        mode = {**dict.fromkeys(_LINEAR, "linear")}.get(options[2], options[2])
        flat = mode in ("bicubic", "lanczos") or options[5]  # these take two dimensions
        factor = None if options[4] else factor
        units = np.eye(source)[:, None, :, None] if flat else np.eye(source)[:, None]
        if factor is None:
            along: tuple[Any, Any] = ((target, 1) if flat else (target,), None)
        else:
            along = (None, (factor, 1) if flat else (factor,))
        mode = "bilinear" if flat and mode == "linear" else mode
        images = _interpolate_reference(units, *along, mode, options[3], None, options[5])
        x = np.moveaxis(np.moveaxis(x, i, -1) @ images.reshape(source, target).T, -1, i)
    return x


def _backward_samples(make: Any) -> Iterator[Sample]:
    """Gradients of the samples of :func:`interpolate`."""
    for sample in _interpolate_samples(make):
        given = dict(zip(("input", "size", "scale_factor"), sample.args)) | sample.kwargs
        shape = tuple(given["input"].shape)
        options = given.get("size"), given.get("scale_factor")
        mode, corners = given.get("mode", "nearest"), given.get("align_corners")
        sizes, _ = _new_sizes(shape, *options)
        rest = mode, corners, None, given.get("antialias", False)
        if mode != "area":
            yield Sample(make((*shape[:2], *sizes)), shape, *options, *rest)


@composite(
    out=_backward_shape,
    dtype=same,
    reference=_backward_reference,
    samples=_backward_samples,
    dtypes="float",
    namespace=(),
)
def interpolate_backward(
    grad_output: Tensor,
    input_shape: IntList,
    size: object,
    scale_factor: object,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    antialias: bool,
) -> Tensor:
    """Gradient of :func:`interpolate`."""
    sizes, factors = _new_sizes(input_shape, size, scale_factor)
    if mode == "area":
        return lazy.adaptive_avg_pool_backward(grad_output, input_shape, sizes)
    if recompute_scale_factor:
        factors = [None] * len(sizes)
    # The same numbers as in the forward pass, which kept none: they follow from the sizes.
    x = wide(grad_output) if mode in _SMOOTH else grad_output
    corners = bool(align_corners)
    for dim, (target, factor) in reversed(list(enumerate(zip(sizes, factors), 2))):
        source = input_shape[dim]
        if antialias:
            shares = _filter(x, source, target, factor, mode, corners)
            x = _multiplied(x, dim, shares)
        else:
            x = _spread(x, dim, source, _taps(x, source, target, factor, mode, corners))
    return narrow(x, grad_output)


def _spread(
    grad: Tensor, dim: int, source: int, taps: list[tuple[Tensor, Tensor | None]]
) -> Tensor:
    """The transpose of :func:`_resampled`: what each element gets of those that it was part of."""
    total = grad.new_zeros((*grad.shape[:dim], source, *grad.shape[dim + 1 :]))
    for places, share in taps:
        part = grad if share is None else grad * _along(share, grad, dim)
        total = total.index_add(dim, places, part)
    return total
