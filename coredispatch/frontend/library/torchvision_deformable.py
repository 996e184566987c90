"""Convolution whose kernel reads at places that another network says: ``deform_conv2d``.

Dai et al., "Deformable Convolutional Networks", 2017; with a mask: Zhu et al., "Deformable ConvNets
v2", 2018. Everything is made of differentiable functions: the gradients are autograd's.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.autograd.backward import grad as gradients_of
from coredispatch.frontend.modes import enable_grad
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import int64
from coredispatch.registry.model.errors import ShapeError

__all__ = ["deform_conv2d", "deform_conv2d_backward"]


def _sampled(images: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """(M, C, P): ``images`` (M, C, H, W) between their pixels at ``y`` and ``x`` (M, P).

    Linear in either direction; pixels outside of the image are 0.
    """
    count, channels, height, width = images.shape
    flat = images.reshape(count, channels, height * width)
    inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    top, left = y.detach().floor(), x.detach().floor()
    down, right = y - top, x - left
    total = images.new_zeros(())
    for below in (0, 1):
        for beside in (0, 1):
            row, column = top + below, left + beside
            known = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
            index = place.to(int64).unsqueeze(1).expand(count, channels, y.shape[1])
            weight = (down if below else 1 - down) * (right if beside else 1 - right)
            total = total + flat.gather(2, index) * (weight * known.to(weight.dtype)).unsqueeze(1)
    return total


def _places(length: int, kernel: int, stride: int, pad: int, dilation: int, like: Tensor) -> Tensor:
    """(kernel, outputs): where each tap reads, before any offset."""
    arange = TABLE.operator("arange")
    outputs = (length + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    if outputs < 1:
        raise ShapeError(
            f"a kernel of {kernel} taps does not fit {length} pixels", fix="use more padding"
        )
    taps = arange(kernel, dtype=like.dtype, device=like.device).unsqueeze(1) * dilation
    starts = arange(outputs, dtype=like.dtype, device=like.device) * stride - pad
    found: Tensor = taps + starts
    return found


def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """(N, O, H', W') of ``input`` (N, C, H, W) and ``weight`` (O, C / groups, kh, kw).

    ``offset`` is (N, 2 * offset_groups * kh * kw, H', W'), rows before columns for each tap; with
    ``use_mask``, ``mask`` (N, offset_groups * kh * kw, H', W') multiplies what is read.
    """
    batch, channels, height, width = input.shape
    features, _, kernel_h, kernel_w = weight.shape
    rows = _places(height, kernel_h, stride_h, pad_h, dilation_h, input)
    columns = _places(width, kernel_w, stride_w, pad_w, dilation_w, input)
    out = (rows.shape[1], columns.shape[1])
    taps = kernel_h * kernel_w
    wanted = (batch, 2 * offset_groups * taps, *out)
    if tuple(offset.shape) != wanted:
        raise ShapeError(
            f"offset has shape {tuple(offset.shape)}, expected {wanted}",
            fix="give two numbers for each tap, offset group and place of the result",
        )
    if use_mask and tuple(mask.shape) != (batch, offset_groups * taps, *out):
        raise ShapeError(
            f"mask has shape {tuple(mask.shape)}, expected {(batch, offset_groups * taps, *out)}",
            fix="give a number for each tap, offset group and place of the result",
        )
    if channels % offset_groups or channels % groups or features % groups:
        raise ShapeError(
            f"{channels} channels and {features} features for {groups} groups and {offset_groups} "
            "offset groups",
            fix="use numbers of channels that the groups divide",
        )
    moved = offset.reshape(batch * offset_groups, kernel_h, kernel_w, 2, *out)
    y = moved[:, :, :, 0] + rows[:, None, :, None]
    x = moved[:, :, :, 1] + columns[:, None, :]
    images = input.reshape(batch * offset_groups, channels // offset_groups, height, width)
    count = len(images)
    read = _sampled(images, y.reshape(count, -1), x.reshape(count, -1))
    if use_mask:
        read = read * mask.reshape(count, 1, -1)
    read = read.reshape(batch, groups, (channels // groups) * taps, out[0] * out[1])
    matrix = weight.reshape(groups, features // groups, -1)
    result: Tensor = (matrix @ read).reshape(batch, features, *out)
    return result + bias.reshape(1, features, 1, 1)


def deform_conv2d_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of :func:`deform_conv2d` for its five tensors; zeros for an unused mask."""
    with enable_grad():
        given = [t.detach().requires_grad_() for t in (input, weight, offset, mask, bias)]
        call: Any = deform_conv2d
        y = call(
            *given, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups,
            offset_groups, use_mask,
        )  # fmt: skip
        found = gradients_of(y, given, grad, allow_unused=True)
    a, b, c, d, e = [g if g is not None else t.new_zeros(t.shape) for g, t in zip(found, given)]
    return a, b, c, d, e
