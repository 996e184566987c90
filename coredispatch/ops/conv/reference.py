"""Metadata that the definitions of convolution share: shape rule, NumPy references, samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from coredispatch.ops.support.samples import Sample
from coredispatch.ops.support.windows import Ints, spatial_tuple, window_size
from coredispatch.registry.model.errors import ArgumentError, ShapeError

# ---- rules ------------------------------------------------------------------------------------


def transposed_size(
    spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, extra: Ints
) -> Ints:
    return tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, k, s, p, d, e in zip(spatial, kernel, stride, padding, dilation, extra, strict=True)
    )


def convolution_shape(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Ints:
    """Shape rule of :func:`convolution`; checks every argument."""
    n = input.ndim - 2
    if n < 1 or weight.ndim != n + 2:
        raise ShapeError(
            f"a {input.ndim}-d input does not fit a {weight.ndim}-d weight",
            fix="both have two dimensions more than there are spatial ones",
        )
    stride = spatial_tuple("stride", stride, n)
    padding = spatial_tuple("padding", padding, n, least=0)
    dilation = spatial_tuple("dilation", dilation, n)
    first, per_group, *kernel = weight.shape
    if groups < 1 or first % groups:
        raise ArgumentError(
            f"groups={groups} does not divide the weight's first size {first}",
            fix="use a divisor of the number of channels",
        )
    channels = first if transposed else per_group * groups
    if input.shape[1] != channels:
        raise ShapeError(
            f"the weight {tuple(weight.shape)} with groups={groups} takes {channels} channels, "
            f"the input has {input.shape[1]}",
            fix="match the channels of input and weight",
        )
    out_channels = per_group * groups if transposed else first
    if bias is not None and tuple(bias.shape) != (out_channels,):
        raise ShapeError(
            f"a bias of shape {tuple(bias.shape)} does not fit {out_channels} output channels",
            fix=f"give a bias of shape ({out_channels},)",
        )
    if 0 in kernel:
        raise ShapeError(
            f"a weight of shape {tuple(weight.shape)} has an empty kernel",
            fix="use kernel sizes of at least 1",
        )
    spatial = tuple(input.shape[2:])
    if transposed:
        extra = spatial_tuple("output_padding", output_padding, n, least=0)
        check_output_padding(extra, stride, dilation)
        if 0 in spatial:
            raise ShapeError(
                f"an input of shape {tuple(input.shape)} has an empty spatial dimension",
                fix="only the batch and the channels may be empty",
            )
        size = transposed_size(spatial, tuple(kernel), stride, padding, dilation, extra)
        if min(size) < 1:
            raise ShapeError(f"the output would have size {size}", fix="use less padding")
    else:
        spatial_tuple("output_padding", output_padding, n, least=0)
        size = window_size(spatial, kernel, stride, padding, dilation)
    return (input.shape[0], out_channels, *size)


def check_output_padding(extra: Ints, stride: Ints, dilation: Ints) -> None:
    """Refuse an ``output_padding`` for which there are several inputs of that size."""
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise ArgumentError(
            f"output padding must be smaller than either stride or dilation: {extra} reaches "
            f"stride {stride} and dilation {dilation}",
            fix="use an output_padding below the stride or the dilation",
        )


class _Shaped:
    """What :func:`convolution_shape` asks of a tensor that is known by its shape alone."""

    def __init__(self, shape: Ints) -> None:
        self.shape, self.ndim = tuple(shape), len(shape)


def _require_result(grad_output: Any, input: Any, weight: Any, options: Any) -> None:
    """Raise :class:`ShapeError` where a convolution gives nothing of the gradient's shape.

    A gradient may have fewer windows: ``output_padding`` makes room for some that gave nothing,
    as long as it is below the stride or the dilation.
    """
    stride, padding, dilation, groups = options
    n = input.ndim - 2
    full = convolution_shape(
        input, weight, None, stride, padding, dilation, False, (0,) * n, int(groups)
    )
    own = tuple(grad_output.shape)
    steps = zip(spatial_tuple("", stride, n), spatial_tuple("", dilation, n), strict=True)
    room = (0, 0, *((max(s, d) - 1) // s for s, d in steps))
    if len(own) != len(full) or any(not 0 <= b - a <= r for a, b, r in zip(own, full, room)):
        raise ShapeError(
            f"a gradient of shape {own} does not fit a convolution whose result has shape {full}",
            fix="give the gradient of the convolution's result",
        )


def input_grad_shape(grad_output: Any, weight: Any, input_shape: Ints, *options: Any) -> Ints:
    """Shape rule of ``conv_input_grad``."""
    _require_result(grad_output, _Shaped(input_shape), weight, options)
    return tuple(input_shape)


def weight_grad_shape(grad_output: Any, input: Any, weight_shape: Ints, *options: Any) -> Ints:
    """Shape rule of ``conv_weight_grad``."""
    _require_result(grad_output, input, _Shaped(weight_shape), options)
    return tuple(weight_shape)


# ---- references and samples -------------------------------------------------------------------


def convolution_reference(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
) -> Any:
    """Convolution by its definition: one term per kernel position."""
    n = input.ndim - 2
    stride, padding = spatial_tuple("", stride, n), spatial_tuple("", padding, n, least=0)
    dilation, extra = spatial_tuple("", dilation, n), spatial_tuple("", output_padding, n, least=0)
    kernel = weight.shape[2:]
    full = convolution_shape(
        input, weight, bias, stride, padding, dilation, transposed, extra, groups
    )
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    x = input.reshape(input.shape[0], groups, input.shape[1] // groups, *input.shape[2:])
    outside = full[2:] if transposed else input.shape[2:]
    inside = input.shape[2:] if transposed else full[2:]
    # Long enough for every window to end inside, also where output_padding adds nothing.
    length = [
        max(o + 2 * p, (i - 1) * s + d * (k - 1) + 1)
        for o, p, i, s, d, k in zip(outside, padding, inside, stride, dilation, kernel, strict=True)
    ]
    core: Any = (..., *(slice(p, p + o) for p, o in zip(padding, outside, strict=True)))
    if transposed:
        padded = np.zeros((*x.shape[:2], weight.shape[1], *length))
    else:
        padded = np.zeros((*x.shape[:3], *length))
        padded[core] = x
        result = np.zeros((full[0], groups, grouped.shape[1], *inside))
    for offset in product(*map(range, kernel)):
        at: Any = (
            ...,
            *(
                slice(o * d, o * d + (i - 1) * s + 1, s)
                for o, d, i, s in zip(offset, dilation, inside, stride, strict=True)
            ),
        )
        w = grouped[(..., *offset)]
        if transposed:
            padded[at] += np.einsum("ngo...,goc->ngc...", x, w)
        else:
            result += np.einsum("ngc...,goc->ngo...", padded[at], w)
    result = (padded[core] if transposed else result).reshape(full)
    return result if bias is None else result + bias.reshape(-1, *(1,) * n)


def input_grad_reference(
    grad_output: Any,
    weight: Any,
    input_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
) -> Any:
    """The transposed convolution, with the rows that no window reached added as zeros."""
    n = grad_output.ndim - 2
    stride, padding = spatial_tuple("", stride, n), spatial_tuple("", padding, n, least=0)
    dilation = spatial_tuple("", dilation, n)
    least = transposed_size(
        grad_output.shape[2:], weight.shape[2:], stride, padding, dilation, (0,) * n
    )
    extra = tuple(a - b for a, b in zip(input_shape[2:], least, strict=True))
    assert all(e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True))
    return convolution_reference(
        grad_output, weight, None, stride, padding, dilation, True, extra, groups
    )


def weight_grad_reference(
    grad_output: Any,
    input: Any,
    weight_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
) -> Any:
    """One inner product per weight: ``grad_output`` with what the weight is multiplied by."""
    n = grad_output.ndim - 2
    stride, padding = spatial_tuple("", stride, n), spatial_tuple("", padding, n, least=0)
    dilation = spatial_tuple("", dilation, n)
    images, out = grad_output.shape[0], grad_output.shape[2:]
    kernel, size = weight_shape[2:], input.shape[2:]
    length = [
        max(i + 2 * p, (o - 1) * s + d * (k - 1) + 1)
        for i, p, o, s, d, k in zip(size, padding, out, stride, dilation, kernel, strict=True)
    ]
    padded: Any = np.zeros((*input.shape[:2], *length))
    padded[(..., *(slice(p, p + i) for p, i in zip(padding, size, strict=True)))] = input
    left = grad_output.reshape(images, groups, weight_shape[0] // groups, math.prod(out))
    result: Any = np.zeros((groups, weight_shape[0] // groups, *weight_shape[1:]))
    for offset in product(*map(range, kernel)):
        at = (
            ...,
            *(
                slice(f * d, f * d + (o - 1) * s + 1, s)
                for f, d, o, s in zip(offset, dilation, out, stride, strict=True)
            ),
        )
        right = padded[at].reshape(images, groups, weight_shape[1], math.prod(out))
        result[(..., *offset)] = np.einsum("ngop,ngcp->goc", left, right)
    return result.reshape(weight_shape)


def named_reference(n: int, transposed: bool) -> Any:
    """Reference of ``conv{n}d`` or ``conv_transpose{n}d``, whose parameters stand differently."""

    def forward(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        if input.ndim == n + 1:
            return forward(input[None], weight, bias, stride, padding, dilation, groups)[0]
        if padding == "same":
            total = [dilation * (k - 1) for k in weight.shape[2:]]
            around = [(0, 0), (0, 0), *((t // 2, t - t // 2) for t in total)]
            input, padding = np.pad(input, around), 0
        return convolution_reference(input, weight, bias, stride, padding, dilation, groups=groups)

    def backward(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        return convolution_reference(
            input, weight, bias, stride, padding, dilation, True, output_padding, groups
        )

    return backward if transposed else forward


#: spatial size, kernel, stride, padding, dilation, groups, C/group, O/group, batch, bias
_CASES: tuple[tuple[Any, ...], ...] = (
    ((5, 5), (3, 3), 1, 0, 1, 1, 2, 3, 2, True),
    ((4, 4), (1, 1), 1, 0, 1, 1, 3, 2, 2, False),
    ((7, 6), (3, 2), (2, 1), (1, 0), 1, 1, 1, 4, 1, True),
    ((9, 7), (3, 3), 1, 2, 2, 1, 2, 2, 1, False),
    ((6, 5), (3, 3), 2, 1, 1, 2, 2, 3, 2, True),
    ((6, 6), (3, 3), 1, 1, 1, 4, 1, 1, 2, True),
    ((5, 4), (5, 4), 1, 0, 1, 1, 3, 5, 3, True),
    ((4, 5), (2, 2), 3, 0, 1, 1, 2, 3, 0, False),
)

#: the same over one dimension and three, with as many places as elements: these may become long
_OTHER_DIMS: tuple[tuple[Any, ...], ...] = (
    ((7,), (3,), 1, 1, 1, 1, 2, 3, 2, True),
    ((4, 2, 5), (3, 1, 3), 1, (1, 0, 1), 1, 1, 2, 3, 1, False),
)


def forward_samples(n: int, transposed: bool = False, general: bool = False) -> Any:
    def cut(value: Any) -> Any:
        # A third spatial dimension is like the second.
        return (*value, value[-1])[:n] if isinstance(value, tuple) else value

    def sampler(make: Any) -> Iterator[Sample]:
        for spatial, kernel, stride, padding, dilation, groups, c, o, batch, bias in _CASES:
            lead = (o if transposed else c) * groups
            x = make((batch, lead, *cut(spatial)))
            w = make((o * groups, c, *cut(kernel)))
            b = make(((c if transposed else o) * groups,)) if bias else None
            stride, padding, dilation = cut(stride), cut(padding), cut(dilation)
            if general:
                yield Sample(x, w, b, stride, padding, dilation, False, 0, groups)
            elif transposed:
                yield Sample(x, w, b, stride, padding, 0, groups, dilation)
            else:
                yield Sample(x, w, b, stride, padding, dilation, groups)
        for spatial, kernel, stride, padding, dilation, groups, c, o, batch, bias in (
            _OTHER_DIMS if general else ()
        ):
            x, w = make((batch, c, *spatial)), make((o, c, *kernel))
            b = make((o,)) if bias else None
            yield Sample(x, w, b, stride, padding, dilation, False, 0, groups)
        if transposed:
            x, w = make((2, 3, *(4, 5, 3)[:n])), make((3, 2, *(3, 2, 2)[:n]))
            yield Sample(x, w, None, 2, 1, 1)
        elif not general:
            x, w = make((3, *(6, 5, 4)[:n])), make((2, 3, *(3, 2, 2)[:n]))
            yield Sample(x, w, None, 1, "same")

    return sampler


def gradient_samples(other: str) -> Any:
    """Arguments of ``conv_input_grad`` or ``conv_weight_grad`` that match a forward call."""

    def sampler(make: Any) -> Iterator[Sample]:
        cases = (*_CASES, *_OTHER_DIMS)
        for spatial, kernel, stride, padding, dilation, groups, c, o, batch, _ in cases:
            n = len(spatial)
            x, w = (batch, c * groups, *spatial), (o * groups, c, *kernel)
            options = [spatial_tuple("", v, n, least=0) for v in (stride, padding, dilation)]
            y = (batch, o * groups, *window_size(spatial, kernel, *options))
            if other == "weight":
                yield Sample(make(y), make(w), x, *options, groups)
            else:
                yield Sample(make(y), make(x), w, *options, groups)

    return sampler
