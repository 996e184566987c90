"""Regions of images, as detection models take them: ``nms``, ``roi_align``, ``roi_pool``.

Everything is made of differentiable functions, so the gradient for ``input`` is autograd's. Regions
have none: where they lie is data.
"""

from __future__ import annotations

import numpy as np

from coredispatch.frontend.autograd.backward import grad as gradient_of
from coredispatch.frontend.creation import from_numpy
from coredispatch.frontend.modes import enable_grad
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import int64

__all__ = ["gradient", "nms", "roi_align", "roi_align_backward", "roi_pool", "roi_pool_backward"]


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Which boxes stay, the best first: the better one of two that overlap too much.

    ``dets`` is (N, 4), corners; ``scores`` (N,). Neubeck and Van Gool, "Efficient Non-Maximum
    Suppression", 2006.
    """
    boxes = dets.detach().cpu().numpy().astype(np.float64)
    order = np.argsort(-scores.detach().cpu().numpy(), kind="stable")
    x1, y1, x2, y2 = boxes.T if len(boxes) else np.zeros((4, 0))
    areas = (x2 - x1) * (y2 - y1)
    kept = []
    while order.size:
        best, rest = order[0], order[1:]
        kept.append(best)
        width = np.minimum(x2[best], x2[rest]) - np.maximum(x1[best], x1[rest])
        height = np.minimum(y2[best], y2[rest]) - np.maximum(y1[best], y1[rest])
        common = width.clip(min=0) * height.clip(min=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            overlap = common / (areas[best] + areas[rest] - common)
        order = rest[~(overlap > iou_threshold)]
    return from_numpy(np.array(kept, dtype=np.int64)).to(dets.device)


def _weights(places: Tensor, length: int, inside: Tensor) -> Tensor:
    """(..., length): how much each pixel counts at each place; nothing for places outside."""
    at = places.clamp(0, length - 1).unsqueeze(-1)
    pixels = TABLE.operator("arange")(length, dtype=places.dtype, device=places.device)
    near = (1 - (at - pixels).abs()).clamp(min=0)
    weights: Tensor = near * inside.unsqueeze(-1).to(places.dtype)
    return weights


def _sampled(start: Tensor, size: Tensor, bins: int, samples: int, length: int) -> Tensor:
    """(bins, length): the mean of linear interpolation at the samples of each bin, as weights."""
    arange = TABLE.operator("arange")
    step = size / bins
    bin_start = start + step * arange(bins, dtype=start.dtype, device=start.device).unsqueeze(1)
    inner = (arange(samples, dtype=start.dtype, device=start.device) + 0.5) / samples
    places = bin_start + inner * step
    inside = (places >= -1) & (places <= length)
    return _weights(places, length, inside).mean(1)


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """(K, C, pooled_height, pooled_width): the mean of samples in the bins of each region.

    ``rois`` is (K, 5): the image's index, and corners. He, Gkioxari, Dollar and Girshick, "Mask
    R-CNN", 2017. Interpolation is linear in each direction, so a region is two matrix products.
    """
    height, width = input.shape[-2:]
    found: list[Tensor] = []
    rois = rois.detach()
    for image, *_ in rois.tolist():
        row = rois[len(found)]
        x1, y1, x2, y2 = (row[1:] * spatial_scale - (0.5 if aligned else 0.0)).unbind()
        w, h = x2 - x1, y2 - y1
        if not aligned:
            w, h = w.clamp(min=1), h.clamp(min=1)
        rows = sampling_ratio if sampling_ratio > 0 else -int(-float(h) // pooled_height)
        columns = sampling_ratio if sampling_ratio > 0 else -int(-float(w) // pooled_width)
        down = _sampled(y1, h, pooled_height, max(rows, 1), height)
        across = _sampled(x1, w, pooled_width, max(columns, 1), width)
        pixels = input[int(image)]
        found.append(down.to(input.dtype) @ pixels @ across.to(input.dtype).mT)
    if not found:
        return input.new_zeros((0, input.shape[1], pooled_height, pooled_width))
    stacked: Tensor = TABLE.operator("stack")(found)
    return stacked


def roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """The gradient for ``input``, of which :func:`roi_align` is a linear function."""
    with enable_grad():
        x = grad.new_zeros((batch_size, channels, height, width)).requires_grad_()
        y = roi_align(
            x, rois.detach(), spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
        )
        return gradient(y, x, grad)


def gradient(y: Tensor, x: Tensor, grad: Tensor) -> Tensor:
    """The gradient for ``x`` of what was made of it; zeros where that is nothing."""
    if not y.numel():
        return x.detach()
    found: Tensor
    (found,) = gradient_of(y, x, grad)
    return found


def _bins(start: int, size: int, count: int, length: int) -> list[slice]:
    edges = [(i * size / count, (i + 1) * size / count) for i in range(count)]
    return [
        slice(
            min(max(int(np.floor(low)) + start, 0), length),
            min(max(int(np.ceil(high)) + start, 0), length),
        )
        for low, high in edges
    ]


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The maximum in the bins of each region, and where it is in the image, -1 in an empty bin.

    Girshick, "Fast R-CNN", 2015: regions are rounded to whole pixels.
    """
    height, width = input.shape[-2:]
    channels = input.shape[1]
    shape = (len(rois), channels, pooled_height, pooled_width)
    pixels = input.detach().cpu().numpy()
    places = np.full(shape, -1, np.int32)
    for k, (image, *corners) in enumerate(rois.detach().tolist()):
        x1, y1, x2, y2 = (int(np.floor(c * spatial_scale + 0.5)) for c in corners)
        rows = _bins(y1, max(y2 - y1 + 1, 1), pooled_height, height)
        columns = _bins(x1, max(x2 - x1 + 1, 1), pooled_width, width)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                part = pixels[int(image), :, row, column].reshape(channels, -1)
                if part.shape[1]:
                    down, across = np.divmod(part.argmax(1), column.stop - column.start)
                    places[k, :, i, j] = (row.start + down) * width + column.start + across
    where = from_numpy(places).to(input.device)
    flat = input.reshape(len(input), channels, height * width)[rois[:, 0].detach().to(int64)]
    at = where.to(int64).reshape(len(rois), channels, -1)
    values = flat.gather(2, at.clamp(min=0)).masked_fill(at < 0, 0)
    return values.reshape(shape), where


def roi_pool_backward(
    grad: Tensor,
    rois: Tensor,
    argmax: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Tensor:
    """The gradient for ``input``: it goes where the maxima were."""
    flat = grad.new_zeros((batch_size, channels, height * width))
    places = argmax.to(int64)
    for k, image in enumerate(rois[:, 0].tolist()):
        at = places[k].reshape(channels, -1)
        share = grad[k].reshape(channels, -1) * (at >= 0).to(grad.dtype)
        flat[int(image)].scatter_add_(1, at.clamp(min=0), share)
    return flat.reshape(batch_size, channels, height, width)
