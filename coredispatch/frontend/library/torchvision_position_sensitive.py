"""Position-sensitive pooling of regions: ``ps_roi_align``, ``ps_roi_pool``.

Each bin of a region reads channels of its own: of ``channels`` in the input, output channel ``c``
of bin ``(i, j)`` reads ``(c * pooled_height + i) * pooled_width + j``. Dai, Li, He and Sun,
"R-FCN", 2016; with interpolation: Li et al., "Light-Head R-CNN", 2017.
"""

from __future__ import annotations

import math

from coredispatch.frontend.library.torchvision_regions import gradient, roi_align
from coredispatch.frontend.modes import enable_grad
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import int32
from coredispatch.registry.model.errors import ShapeError

__all__ = ["ps_roi_align", "ps_roi_align_backward", "ps_roi_pool", "ps_roi_pool_backward"]


def _mapping(input: Tensor, rois: Tensor, height: int, width: int) -> Tensor:
    """(K, channels out, height, width): which channel of the input each bin reads."""
    channels = input.shape[1]
    if channels % (height * width):
        raise ShapeError(
            f"{channels} channels for {height} x {width} bins",
            fix="input channels must be a multiple of pooling height * pooling width",
        )
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise ShapeError(
            f"regions of shape {tuple(rois.shape)}",
            fix="Tensor rois should have shape as Tensor[K, 5]",
        )
    numbers = TABLE.operator("arange")(channels, dtype=int32, device=input.device)
    shape = (len(rois), channels // (height * width), height, width)
    mapping: Tensor = numbers.reshape(shape[1:]).expand(shape).contiguous()
    return mapping


def _own_channels(pooled: Tensor) -> Tensor:
    """(K, C, h, w) of (K, C * h * w, h, w): to each bin its own channels."""
    count, channels, height, width = pooled.shape
    x = pooled.reshape(count, channels // (height * width), height, width, height, width)
    return x.diagonal(dim1=2, dim2=4).diagonal(dim1=2, dim2=3).contiguous()


def ps_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Tensor, Tensor]:
    """The mean of samples in each bin, and the channels that they were read from.

    ``input`` is (N, C * pooled_height * pooled_width, H, W), ``rois`` (K, 5), the image's index and
    corners; the result is (K, C, pooled_height, pooled_width).
    """
    mapping = _mapping(input, rois, pooled_height, pooled_width)
    pooled = roi_align(
        input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, True
    )
    return _own_channels(pooled), mapping


def _rounded(x: float) -> int:
    """To the nearest integer, halves away from zero, as C rounds."""
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def _shares(start: int, end: int, bins: int, length: int) -> list[tuple[int, int]]:
    """First and last pixel of each bin; the last pixel of the image belongs to none."""
    size = max(end - start, 1) / bins
    return [
        (
            min(max(math.floor(i * size) + start, 0), length - 1),
            min(max(math.ceil((i + 1) * size) + start, 0), length - 1),
        )
        for i in range(bins)
    ]


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """:func:`ps_roi_align` with the mean of whole pixels; 0 in an empty bin.

    As in torchvision, bins end before the last row and column of the image.
    """
    mapping = _mapping(input, rois, pooled_height, pooled_width)
    height, width = input.shape[-2:]
    found: list[Tensor] = []
    for image, *corners in rois.detach().tolist():
        x1, y1, x2, y2 = (_rounded(c * spatial_scale) for c in corners)
        down = _averages(_shares(y1, y2, pooled_height, height), height, input)
        across = _averages(_shares(x1, x2, pooled_width, width), width, input)
        found.append(_own_channels((down @ input[int(image)] @ across.mT).unsqueeze(0)).squeeze(0))
    if not found:
        return input.new_zeros(tuple(mapping.shape)), mapping
    stacked: Tensor = TABLE.operator("stack")(found)
    return stacked, mapping


def _averages(shares: list[tuple[int, int]], length: int, like: Tensor) -> Tensor:
    """(bins, length): the matrix that takes the mean of each bin."""
    weights = like.new_zeros((len(shares), length))
    for i, (first, last) in enumerate(shares):
        if last > first:
            weights[i, first:last] = 1 / (last - first)
    return weights


def ps_roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    channel_mapping: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
) -> Tensor:
    """The gradient of :func:`ps_roi_align` for ``input``."""
    with enable_grad():
        x = grad.new_zeros((batch_size, channels, height, width)).requires_grad_()
        y, _ = ps_roi_align(x, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio)
        return gradient(y, x, grad)


def ps_roi_pool_backward(
    grad: Tensor,
    rois: Tensor,
    channel_mapping: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Tensor:
    """The gradient of :func:`ps_roi_pool` for ``input``."""
    with enable_grad():
        x = grad.new_zeros((batch_size, channels, height, width)).requires_grad_()
        y, _ = ps_roi_pool(x, rois, spatial_scale, pooled_height, pooled_width)
        return gradient(y, x, grad)
