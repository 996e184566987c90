"""Pooling: general operators over the last dimensions.

The general operators take one kernel size, stride and so on per pooled dimension and pool the
last ``len(kernel_size)`` dimensions, whatever stands before them; PyTorch's named forms
(:mod:`.pooling_named`) fill in the defaults. Where several elements of a window are the maximum,
the first in row order counts.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from coredispatch.ops.conv.general import conv_input_grad
from coredispatch.ops.pooling.backward_reference import (
    adaptive_backward_reference,
    adaptive_backward_samples,
    avg_backward_samples,
    avg_pool_backward_reference,
    max_backward_samples,
    max_pool_backward_reference,
)
from coredispatch.ops.pooling.reference import (
    adaptive_backward_shape,
    adaptive_reference,
    adaptive_samples,
    adaptive_shape,
    avg_pool_backward_shape,
    avg_pool_shape,
    avg_reference,
    max_pool_backward_shape,
    max_pool_pair,
    max_pool_shape,
    max_reference,
    max_with_indices_reference,
    pool_samples,
    values_and_indices,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import REAL_NUMBER, dot, exact, same
from coredispatch.ops.support.windows import (
    Ints,
    lowest,
    pool_geometry,
    window_positions,
    windows,
)
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import float64, int64
from coredispatch.registry.model.value import dtype_of

# ---- maximum ----------------------------------------------------------------------------------


def _around(before: Ints, after: Ints) -> list[int]:
    """Amounts for ``pad``, which counts from the last dimension."""
    return [m for pair in zip(reversed(before), reversed(after)) for m in pair]


@composite(
    out=max_pool_shape,
    dtype=same,
    reference=max_reference(),
    samples=pool_samples(2, general=True),
    takes="real",
    smooth=False,
    tolerance=exact,
    namespace=(),
)
def max_pool(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    ceil_mode: bool,
) -> Tensor:
    """Maximum of each window over the last ``len(kernel_size)`` dimensions."""
    n = len(kernel_size)
    _, after = pool_geometry(input.shape[-n:], kernel_size, stride, padding, dilation, ceil_mode)
    x = input
    if any(padding) or any(after):
        x = lazy.pad(x, _around(padding, after), value=lowest(x))
    return windows(x, kernel_size, stride, dilation).amax(tuple(range(-n, 0)))


@max_pool.vjp
def _(grad, input, kernel_size, stride, padding, dilation, ceil_mode):
    return max_pool_backward(grad, input, kernel_size, stride, padding, dilation, ceil_mode)


max_pool.edge(
    "the first of equal elements",
    [[[1.0, 1.0, 1.0, 1.0]]],
    (2,),
    (2,),
    (0,),
    (1,),
    False,
    gradient=[[[1.0, 0.0, 1.0, 0.0]]],
)


@composite(
    out=max_pool_pair,
    dtype=values_and_indices,
    reference=max_with_indices_reference(),
    samples=pool_samples(2, general=True),
    takes="real",
    smooth=False,
    tolerance=exact,
    namespace=(),
)
def max_pool_with_indices(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    ceil_mode: bool,
) -> tuple[Tensor, Tensor]:
    """Maximum of each window, and its int64 position in the flattened pooled dimensions.

    A window that lies wholly in the padding, as a dilated one may, has the lowest value and the
    position -1, and no gradient. PyTorch's position is one beyond the input there.
    """
    n = len(kernel_size)
    lead, spatial = input.shape[:-n], input.shape[-n:]
    output, _ = pool_geometry(spatial, kernel_size, stride, padding, dilation, ceil_mode)
    at = input.device
    starts = [lazy.arange(o, device=at) * s - p for o, s, p in zip(output, stride, padding)]
    within = [lazy.arange(k, device=at) * d for k, d in zip(kernel_size, dilation)]
    flat, valid = window_positions(input, spatial, starts, within)
    if not any(padding) and not ceil_mode:
        valid = None
    values, indices = _window_maximum(input.reshape(*lead, prod(spatial)), flat, valid)
    if _may_miss(padding, dilation):
        met = valid.any(-1)
        values = values.masked_fill(~met, lowest(input))
        indices = indices.masked_fill(~met, -1)
    return values.reshape(*lead, *output), indices.reshape(*lead, *output)


def _may_miss(padding: Ints, dilation: Ints) -> bool:
    """Whether all places of a window may lie in the padding, on both sides of the input."""
    return any(p > 0 and d > 1 for p, d in zip(padding, dilation))


def _window_maximum(x: Tensor, flat: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Maximum and position of ``x[..., flat]`` where ``valid``; ``flat`` is (windows, elements)."""
    count, elements = flat.shape
    taken = x.index_select(-1, flat.reshape(-1)).reshape(*x.shape[:-1], count, elements)
    if valid is None:
        chosen = taken.argmax(-1, True)
    else:
        chosen = taken.masked_fill(~valid, lowest(x)).argmax(-1, True)
        # In a window of lowest values the choice may have fallen on an element that is none.
        met = valid.expand(taken.shape).gather(-1, chosen)
        chosen = lazy.where(met, chosen, valid.to(int64).argmax(-1, True))
    indices = flat.expand(taken.shape).gather(-1, chosen).squeeze(-1)
    return x.gather(-1, indices), indices


@max_pool_with_indices.vjp
def _(grad0, out1, input_shape, kernel_size, padding, dilation):
    return _scattered(grad0, out1, input_shape, len(kernel_size), _may_miss(padding, dilation))


def _scattered(
    grad: Tensor, indices: Tensor, input_shape: Ints, n: int, missing: bool = False
) -> Tensor:
    """``grad`` added into zeros at flat positions in the last ``n`` dimensions.

    With ``missing`` there may be positions of -1, whose gradients go nowhere.
    """
    lead = input_shape[:-n]
    if missing:
        grad, indices = grad.masked_fill(indices < 0, 0), indices.clamp(0)
    flat = indices.reshape(*lead, prod(indices.shape[-n:]))
    total = grad.new_zeros((*lead, prod(input_shape[-n:])))
    return total.scatter_add(-1, flat, grad.reshape(flat.shape)).reshape(input_shape)


@composite(
    out=max_pool_backward_shape,
    dtype=same,
    reference=max_pool_backward_reference,
    samples=max_backward_samples,
    dtypes="float",
    smooth=False,
    tolerance=replace(dot, linear=("grad_output",)),
    namespace=(),
)
def max_pool_backward(
    grad_output: Tensor,
    input: Tensor,
    kernel_size: IntList,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    ceil_mode: bool,
) -> Tensor:
    """Gradient of :func:`max_pool`: each window's goes to the first of its maxima."""
    _, indices = max_pool_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    missing = _may_miss(padding, dilation)
    return _scattered(grad_output, indices, input.shape, len(kernel_size), missing)


def _max_pool_backward_grad(
    grad: Any,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any,
) -> Any:
    _, indices = max_pool_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    if not _may_miss(padding, dilation):
        return _gathered(grad, indices, len(kernel_size))
    taken = _gathered(grad, indices.clamp(0), len(kernel_size))
    return taken.masked_fill(indices < 0, 0)


def _gathered(values: Tensor, indices: Tensor, n: int) -> Tensor:
    """The elements of ``values`` at flat positions in its last ``n`` dimensions."""
    lead = values.shape[:-n]
    flat = values.reshape(*lead, prod(values.shape[-n:]))
    taken = flat.gather(-1, indices.reshape(*lead, prod(indices.shape[-n:])))
    return taken.reshape(indices.shape)


max_pool_backward.vjp(
    grad_output=_max_pool_backward_grad,
    input=lambda grad: lazy.zeros_like(grad),
)


# ---- average ----------------------------------------------------------------------------------


def _counts(
    like: Tensor,
    spatial: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Any:
    """How many elements each window averages: a number where all agree, else a tensor."""
    ones = (1,) * len(kernel)
    _, after = pool_geometry(spatial, kernel, stride, padding, ones, ceil_mode)
    if after == tuple(padding) and (count_include_pad or not any(padding)):
        return prod(kernel)
    counted = like.new_ones(spatial)
    if count_include_pad:
        counted = lazy.pad(counted, _around(padding, padding), value=1)
        beyond = tuple(a - p for a, p in zip(after, padding))
        counted = lazy.pad(counted, _around((0,) * len(kernel), beyond))
    else:
        counted = lazy.pad(counted, _around(padding, after))
    return windows(counted, kernel, stride, ones).sum(tuple(range(-len(kernel), 0)))


@composite(
    out=avg_pool_shape,
    dtype=same,
    reference=avg_reference(),
    samples=pool_samples(2, average=True, general=True),
    takes=REAL_NUMBER,
    dtypes="float",
    tolerance=dot,
    namespace=(),
)
def avg_pool(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList,
    padding: IntList,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Average of each window over the last ``len(kernel_size)`` dimensions, of integers without
    its fraction.
    """
    if dtype_of(input).category == 1:
        options = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        averages = avg_pool(lazy.to_dtype(input, float64), *options)
        return lazy.to_dtype(averages, dtype_of(input))
    n = len(kernel_size)
    spatial, ones = input.shape[-n:], (1,) * n
    _, after = pool_geometry(spatial, kernel_size, stride, padding, ones, ceil_mode)
    x = input
    if any(padding) or any(after):
        x = lazy.pad(x, _around(padding, after))
    total = windows(x, kernel_size, stride, ones).sum(tuple(range(-n, 0)))
    return total / (
        divisor_override
        or _counts(input, spatial, kernel_size, stride, padding, ceil_mode, count_include_pad)
    )


@avg_pool.vjp
def _(
    grad, input_shape, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
):
    options = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    return avg_pool_backward(grad, input_shape, *options)


@composite(
    out=avg_pool_backward_shape,
    dtype=same,
    reference=avg_pool_backward_reference,
    samples=avg_backward_samples,
    dtypes="float",
    tolerance=dot,
    namespace=(),
)
def avg_pool_backward(
    grad_output: Tensor,
    input_shape: IntList,
    kernel_size: IntList,
    stride: IntList,
    padding: IntList,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Gradient of :func:`avg_pool`: each window's is shared among its elements."""
    n = len(kernel_size)
    lead, spatial, ones = tuple(input_shape[:-n]), tuple(input_shape[-n:]), (1,) * n
    output, after = pool_geometry(spatial, kernel_size, stride, padding, ones, ceil_mode)
    share = grad_output / (
        divisor_override
        or _counts(grad_output, spatial, kernel_size, stride, padding, ceil_mode, count_include_pad)
    )
    # Summing a window is a convolution by ones, with every plane its own batch entry.
    planes = prod(lead)
    padded = tuple(p + s + a for p, s, a in zip(padding, spatial, after))
    spread = conv_input_grad(
        share.reshape(planes, 1, *output),
        share.new_ones((1, 1, *kernel_size)),
        (planes, 1, *padded),
        stride,
        (0,) * n,
        ones,
        1,
    ).reshape(*lead, *padded)
    return spread[(..., *(slice(p, p + s) for p, s in zip(padding, spatial)))]


# ---- adaptive ---------------------------------------------------------------------------------


def _bins(like: Tensor, size: int, count: int) -> tuple[Tensor, Tensor]:
    """Start of each of ``count`` adaptive windows over ``size`` positions, and one past its end."""
    place = lazy.arange(count, device=like.device)
    return place * size // count, ((place + 1) * size + count - 1) // count


def _adaptive_positions(like: Tensor, spatial: Ints, output_size: Ints) -> tuple[Tensor, Tensor]:
    """Flat positions and existence of the elements of each adaptive window."""
    bins = [_bins(like, s, o) for s, o in zip(spatial, output_size)]
    counts = [max(o, 1) for o in output_size]  # no windows have some length as well
    longest = [-(-s // o) + (s % o > 1) for s, o in zip(spatial, counts)]
    within = [lazy.arange(min(m, s), device=like.device) for m, s in zip(longest, spatial)]
    return window_positions(like, spatial, [b[0] for b in bins], within, [b[1] for b in bins])


@composite(
    out=adaptive_shape,
    dtype=same,
    reference=adaptive_reference(),
    samples=adaptive_samples(2, general=True),
    takes="float",
    tolerance=dot,
    namespace=(),
)
def adaptive_avg_pool(input: Tensor, output_size: IntList) -> Tensor:
    """Average over windows that divide the last ``len(output_size)`` dimensions evenly.

    Window ``i`` of ``m`` over ``n`` positions goes from ``floor(i * n / m)`` to
    ``ceil((i + 1) * n / m)``.
    """
    n = len(output_size)
    lead = input.shape[:-n]
    flat, valid = _adaptive_positions(input, input.shape[-n:], output_size)
    x = input.reshape(*lead, prod(input.shape[-n:])).index_select(-1, flat.reshape(-1))
    taken = x.reshape(*lead, *flat.shape).masked_fill(~valid, 0)
    return (taken.sum(-1) / valid.sum(-1)).reshape(*lead, *output_size)


@adaptive_avg_pool.vjp
def _(grad, input_shape, output_size):
    return adaptive_avg_pool_backward(grad, input_shape, output_size)


@composite(
    out=adaptive_backward_shape,
    dtype=same,
    reference=adaptive_backward_reference,
    samples=adaptive_backward_samples,
    dtypes="float",
    tolerance=dot,
    namespace=(),
)
def adaptive_avg_pool_backward(
    grad_output: Tensor, input_shape: IntList, output_size: IntList
) -> Tensor:
    """Gradient of :func:`adaptive_avg_pool`."""
    n = len(output_size)
    lead, spatial = tuple(input_shape[:-n]), tuple(input_shape[-n:])
    flat, valid = _adaptive_positions(grad_output, spatial, output_size)
    share = grad_output.reshape(*lead, flat.shape[0]) / valid.sum(-1)
    spread = share.unsqueeze(-1).expand(*lead, *flat.shape).masked_fill(~valid, 0)
    total = grad_output.new_zeros((*lead, prod(spatial)))
    return total.index_add(-1, flat.reshape(-1), spread.reshape(*lead, flat.numel())).reshape(
        input_shape
    )


@composite(
    out=lambda input, output_size: [adaptive_shape(input, output_size)] * 2,
    dtype=values_and_indices,
    reference=adaptive_reference(maximum=True),
    samples=adaptive_samples(2, general=True),
    takes="float",
    smooth=False,
    tolerance=exact,
    namespace=(),
)
def adaptive_max_pool(input: Tensor, output_size: IntList) -> tuple[Tensor, Tensor]:
    """Maximum over the windows of :func:`adaptive_avg_pool`, and its flat position."""
    n = len(output_size)
    lead, spatial = input.shape[:-n], input.shape[-n:]
    flat, valid = _adaptive_positions(input, spatial, output_size)
    values, indices = _window_maximum(input.reshape(*lead, prod(spatial)), flat, valid)
    return values.reshape(*lead, *output_size), indices.reshape(*lead, *output_size)


@adaptive_max_pool.vjp
def _(grad0, out1, input_shape, output_size):
    return _scattered(grad0, out1, input_shape, len(output_size))
