"""NumPy references and samples of the backward operators of pooling, in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.pooling.reference import (
    adaptive_bins,
    divided,
    each_offset,
    max_with_indices_reference,
    window_counts,
)
from coredispatch.ops.support.samples import Sample
from coredispatch.ops.support.windows import pool_geometry


def max_pool_backward_reference(
    grad_output: Any,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any,
) -> Any:
    """Each window's gradient added to the first of its maxima."""
    n = len(kernel_size)
    lead, spatial = input.shape[:-n], input.shape[-n:]
    options = kernel_size, stride, padding, dilation, ceil_mode
    _, indices = max_with_indices_reference(n)(input, *options)
    planes = math.prod(lead)
    result = np.zeros((planes, math.prod(spatial)))
    windows = math.prod(indices.shape[-n:])
    at = np.arange(planes)[:, None], indices.reshape(planes, windows)
    np.add.at(result, at, grad_output.reshape(planes, windows))
    return result.reshape(input.shape)


def avg_pool_backward_reference(
    grad_output: Any,
    input_shape: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    divisor_override: Any,
) -> Any:
    """Each window's gradient shared among its elements."""
    n = len(kernel_size)
    spatial = tuple(input_shape[-n:])
    if divisor_override is None:
        include = count_include_pad
        counts = window_counts(spatial, kernel_size, stride, padding, ceil_mode, include)
        share = divided(grad_output, counts)
    else:
        share = grad_output / divisor_override
    around, core, places = each_offset(spatial, kernel_size, stride, padding, (1,) * n, ceil_mode)
    padded: Any = np.zeros((*input_shape[:-n], *around))
    for at in places:
        padded[at] += share
    return padded[core]


def adaptive_backward_reference(grad_output: Any, input_shape: Any, output_size: Any) -> Any:
    """Each window's gradient shared among its elements."""
    n = len(output_size)
    result: Any = np.zeros(input_shape)
    bins = [adaptive_bins(s, o) for s, o in zip(input_shape[-n:], output_size)]
    for place in np.ndindex(*output_size):
        at = tuple(slice(*bins[i][o]) for i, o in enumerate(place))
        count = int(np.prod([s.stop - s.start for s in at]))
        result[(..., *at)] += (grad_output[(..., *place)] / count)[(..., *(None,) * n)]
    return result


#: spatial size, kernel, stride, padding, dilation, ceil_mode
_WINDOWS: tuple[tuple[Any, ...], ...] = (
    ((4, 4), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((7, 6), (3, 2), (2, 1), (1, 0), (1, 1), True),
    ((6, 7), (2, 3), (1, 2), (1, 1), (2, 1), False),
)
#: windows over one dimension and three, with as many places as elements: these may become long
_OTHER_DIMS: tuple[tuple[Any, ...], ...] = (
    ((7,), (3,), (1,), (1,), (1,), False),
    ((4, 2, 5), (3, 1, 3), (1, 1, 1), (1, 0, 1), (1, 1, 1), False),
)
#: a long row of them, which overlap: no dimension of such a call may grow alone
_LONG = ((2, 139), (2, 3), (1, 2), (0, 1), (1, 1), False)


def max_backward_samples(make: Any) -> Iterator[Sample]:
    """Windows apart, overlapping and dilated; ties."""
    for spatial, *options in (*_WINDOWS, *_OTHER_DIMS):
        output, _ = pool_geometry(spatial, *options)
        yield Sample(make((2, 3, *output)), make((2, 3, *spatial)), *options)
    spatial, *options = _LONG
    output, _ = pool_geometry(spatial, *options)
    yield Sample(make((1, 1, *output)), make((1, 1, *spatial)), *options)


def avg_backward_samples(make: Any) -> Iterator[Sample]:
    """Windows apart and overlapping, with every way to count."""
    for spatial, kernel, stride, padding, dilation, ceil in _WINDOWS:
        if dilation != (1, 1):
            continue
        output, _ = pool_geometry(spatial, kernel, stride, padding, dilation, ceil)
        for counting in ((True, None), (False, None), (True, 3)):
            options = kernel, stride, padding, ceil, *counting
            yield Sample(make((2, 3, *output)), (2, 3, *spatial), *options)
    for spatial, kernel, stride, padding, _, ceil in _OTHER_DIMS:
        options = kernel, stride, padding, ceil, True, None
        yield Sample(make((2, 3, *spatial)), (2, 3, *spatial), *options)
    spatial, kernel, stride, padding, dilation, ceil = _LONG
    output, _ = pool_geometry(spatial, kernel, stride, padding, dilation, ceil)
    options = kernel, stride, padding, ceil, False, None
    yield Sample(make((1, 1, *output)), (1, 1, *spatial), *options)


def adaptive_backward_samples(make: Any) -> Iterator[Sample]:
    """Windows that divide the size, overlap, or are one."""
    for spatial, size in (((4, 6), (2, 3)), ((5, 7), (3, 4)), ((7, 5), (1, 1)), ((3, 2), (5, 4))):
        yield Sample(make((2, 3, *size)), (2, 3, *spatial), size)
    yield Sample(make((2, 3, 4)), (2, 3, 7), (4,))
    yield Sample(make((2, 3, 2, 2, 3)), (2, 3, 4, 3, 5), (2, 2, 3))
    yield Sample(make((1, 1, 2, 53)), (1, 1, 3, 139), (2, 53))


# ---- embedding and columns --------------------------------------------------------------------
