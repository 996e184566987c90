"""Metadata that the definitions of pooling share: shape rules, NumPy references, samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from coredispatch.ops.support.rules import values_and_indices
from coredispatch.ops.support.samples import Sample
from coredispatch.ops.support.windows import Ints, pool_geometry, spatial_tuple
from coredispatch.registry.model.errors import ShapeError

__all__ = [
    "adaptive_backward_shape",
    "adaptive_bins",
    "adaptive_reference",
    "adaptive_samples",
    "adaptive_shape",
    "avg_pool_backward_shape",
    "avg_pool_shape",
    "avg_reference",
    "divided",
    "each_offset",
    "max_pool_backward_shape",
    "max_pool_pair",
    "max_pool_shape",
    "max_reference",
    "max_with_indices_reference",
    "pool_samples",
    "tapped",
    "values_and_indices",
    "window_counts",
]


def max_pool_shape(
    input: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Ints:
    """Shape rule of ``max_pool``: the last dimensions, as many as the kernel has, are pooled."""
    n = len(kernel_size)
    shape = tuple(input.shape)
    if len(shape) < n:
        raise ShapeError(
            f"an input of shape {shape} has no {n} dimensions to pool",
            fix=f"use an input with at least {n} dimensions",
        )
    output, _ = pool_geometry(shape[-n:], kernel_size, stride, padding, dilation, ceil_mode)
    return shape[:-n] + output


def max_pool_pair(*args: Any) -> list[Ints]:
    """Shape rule of ``max_pool_with_indices``."""
    shape = max_pool_shape(*args)
    return [shape, shape]


def avg_pool_shape(
    input: Any, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: bool, *_: Any
) -> Ints:
    """Shape rule of ``avg_pool``."""
    return max_pool_shape(input, kernel_size, stride, padding, (1,) * len(kernel_size), ceil_mode)


def adaptive_shape(input: Any, output_size: Ints) -> Ints:
    """Shape rule of ``adaptive_avg_pool``; an empty dimension has no windows to average."""
    n, shape = len(output_size), tuple(input.shape)
    if len(shape) < n or 0 in shape[len(shape) - n :]:
        raise ShapeError(
            f"an input of shape {shape} has no {n} dimensions with elements to pool",
            fix="only dimensions in front of the pooled ones may be empty",
        )
    return (*shape[: len(shape) - n], *output_size)


class _Shaped:
    """What shape rules ask of a tensor that is known by its shape alone."""

    def __init__(self, shape: Ints) -> None:
        self.shape = tuple(shape)


def _backward_shape(grad_output: Any, output_shape: Ints, input_shape: Ints) -> Ints:
    if tuple(grad_output.shape) != tuple(output_shape):
        raise ShapeError(
            f"a gradient of shape {tuple(grad_output.shape)} does not fit a result of shape "
            f"{tuple(output_shape)}",
            fix="give the gradient of the pooled result",
        )
    return tuple(input_shape)


def max_pool_backward_shape(grad_output: Any, input: Any, *options: Any) -> Ints:
    """Shape rule of ``max_pool_backward``."""
    return _backward_shape(grad_output, max_pool_shape(input, *options), input.shape)


def avg_pool_backward_shape(grad_output: Any, input_shape: Ints, *options: Any) -> Ints:
    """Shape rule of ``avg_pool_backward``."""
    return _backward_shape(grad_output, avg_pool_shape(_Shaped(input_shape), *options), input_shape)


def adaptive_backward_shape(grad_output: Any, input_shape: Ints, output_size: Ints) -> Ints:
    """Shape rule of ``adaptive_avg_pool_backward``."""
    return _backward_shape(
        grad_output, adaptive_shape(_Shaped(input_shape), output_size), input_shape
    )


def adaptive_bins(size: int, count: int) -> list[tuple[int, int]]:
    """Start and end of each adaptive window, see ``adaptive_avg_pool``."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


# ---- references -------------------------------------------------------------------------------


def each_offset(
    spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Ints, Any, list[Any]]:
    """Windows by the places in them: one array operation for each, however many windows there are.

    Gives the size of an array that every window lies in, where the input stands there, and for each
    offset in a window, in row order, where all windows have their element.
    """
    output, _ = pool_geometry(spatial, kernel, stride, padding, dilation, ceil_mode)
    sizes = list(zip(spatial, output, kernel, stride, padding, dilation, strict=True))
    around = tuple(max(p + n, (o - 1) * s + d * (k - 1) + 1) for n, o, k, s, p, d in sizes)
    core: Any = (..., *(slice(p, p + n) for n, _, _, _, p, _ in sizes))
    places: list[Any] = [
        (..., *(slice(j * d, j * d + (o - 1) * s + 1, s) for j, (_, o, _, s, _, d) in at))
        for at in (list(zip(offset, sizes)) for offset in product(*map(range, kernel)))
    ]
    return around, core, places


def tapped(x: Any, *options: Any) -> Iterator[Any]:
    """For each offset in a window, the elements that all windows have there; 0 in the padding."""
    n = len(options[0])
    around, core, places = each_offset(x.shape[-n:], *options)
    padded = np.zeros((*x.shape[:-n], *around), x.dtype)
    padded[core] = x
    return (padded[at] for at in places)


def window_counts(
    spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, include: bool
) -> Any:
    """How many elements an average of each window is divided by."""
    one = (1,) * len(kernel)
    if not include:
        inside = np.ones(spatial, np.int64)
        counted: Any = sum(tapped(inside, kernel, stride, padding, one, ceil_mode))
        return counted
    output, _ = pool_geometry(spatial, kernel, stride, padding, one, ceil_mode)
    counts: Any = np.ones((), np.int64)
    for n, o, k, s, p in zip(spatial, output, kernel, stride, padding, strict=True):
        starts = np.arange(o) * s - p
        counts = np.multiply.outer(counts, np.minimum(starts + k, n + p) - starts)
    return counts


def divided(total: Any, counts: Any) -> Any:
    """``total`` by whole numbers, in its own precision where it has one."""
    return total / (counts.astype(total.dtype) if total.dtype.kind == "f" else counts)


def _flattened(window: Any, n: int) -> Any:
    """The last ``n`` dimensions as one."""
    return window.reshape(*window.shape[:-n], int(np.prod(window.shape[-n:])))


def max_with_indices_reference(dims: int = 0) -> Callable[..., tuple[Any, Any]]:
    """Maximum and its flat position, window by window; 0 dims are those of the kernel."""

    def reference(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> tuple[Any, Any]:
        n = dims or len(kernel_size)
        kernel = spatial_tuple("", kernel_size, n)
        step = kernel if stride is None else spatial_tuple("", stride, n)
        pad, gap = spatial_tuple("", padding, n, least=0), spatial_tuple("", dilation, n)
        spatial = input.shape[-n:]
        options = kernel, step, pad, gap, ceil_mode
        flat = np.arange(int(np.prod(spatial))).reshape(spatial)
        all_inside = tapped(np.ones(spatial, np.bool_), *options)
        values: Any = None
        for x, inside, place in zip(tapped(input, *options), all_inside, tapped(flat, *options)):
            if values is None:
                values, indices = x.copy(), np.broadcast_to(place, x.shape).copy()
                met = inside.copy()
                continue
            larger = (x > values) | ((x != x) & (values == values))
            taken = inside & (larger | ~met)
            values = np.where(taken, x, values)
            indices = np.where(taken, place, indices)
            met |= inside
        if values.size and not met.all():
            raise ValueError("a window that lies in the padding alone has no maximum")
        return values, indices

    return reference


def max_reference(dims: int = 0) -> Callable[..., Any]:
    """The values alone."""
    pair = max_with_indices_reference(dims)
    return lambda *args, **kwargs: pair(*args, **kwargs)[0]


def avg_reference(dims: int = 0) -> Callable[..., Any]:
    """Average of each window over ``dims`` dimensions; 0 are those of the kernel."""

    def reference(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Any:
        n = dims or len(kernel_size)
        kernel = spatial_tuple("", kernel_size, n)
        step = kernel if stride is None else spatial_tuple("", stride, n)
        pad, one = spatial_tuple("", padding, n, least=0), (1,) * n
        total: Any = sum(tapped(input, kernel, step, pad, one, ceil_mode))
        if divisor_override is not None:
            return total / divisor_override
        include = count_include_pad
        counts = window_counts(input.shape[-n:], kernel, step, pad, ceil_mode, include)
        return divided(total, counts)

    return reference


def adaptive_reference(dims: int = 0, maximum: bool = False) -> Callable[..., Any]:
    """Adaptive average, or maximum with its flat position; 0 dims are as many as sizes."""

    def reference(input: Any, output_size: Any) -> Any:
        n = dims or len(output_size)
        size = (output_size,) * n if isinstance(output_size, int) else tuple(output_size)
        lead, spatial = input.shape[:-n], input.shape[-n:]
        size = tuple(s if o is None else o for o, s in zip(size, spatial))
        bins = [adaptive_bins(s, o) for s, o in zip(spatial, size)]
        values = np.empty(lead + size)
        indices = np.empty(lead + size, np.int64)
        flat = np.arange(int(np.prod(spatial))).reshape(spatial)
        for place in np.ndindex(*size):
            at = tuple(slice(*bins[i][o]) for i, o in enumerate(place))
            window = _flattened(input[(..., *at)], n)
            if not maximum:
                values[(..., *place)] = window.mean(-1)
                continue
            chosen = window.argmax(-1)
            values[(..., *place)] = window.max(-1)
            indices[(..., *place)] = flat[at].reshape(-1)[chosen]
        return (values, indices) if maximum else values

    return reference


# ---- samples ----------------------------------------------------------------------------------

#: spatial size, kernel, stride, padding, dilation, ceil_mode
_CASES: tuple[tuple[Any, ...], ...] = (
    ((4, 4), (2, 2), None, 0, 1, False),
    ((5, 7), (2, 3), None, 0, 1, True),
    ((7, 6), (3, 2), (2, 1), (1, 0), 1, False),
    ((6, 6), (3, 3), 2, 1, 1, True),
    ((9, 8), (3, 2), 1, 1, 2, False),
    ((3, 5), (3, 5), 1, 0, 1, False),
)

#: windows of the general operators over one dimension and three, full tuples each
_OTHER_DIMS: tuple[tuple[Any, ...], ...] = (
    ((7,), (3,), (2,), (1,), (1,), False),
    ((4, 3, 5), (2, 1, 3), (1, 2, 1), (0, 0, 1), (1, 1, 1), False),
)


def pool_samples(n: int, average: bool = False, general: bool = False) -> Any:
    """Sampler of ``max_pool{n}d`` or ``avg_pool{n}d``, or of the general operator below them."""

    def cut(value: Any) -> Any:
        return (*value, value[-1])[:n] if isinstance(value, tuple) else value

    def full(value: Any) -> Any:
        return spatial_tuple("", value, n, least=0) if general else value

    def sampler(make: Any) -> Iterator[Sample]:
        leads = ((2, 3), (3,), (0, 2))
        for (spatial, kernel, stride, padding, dilation, ceil), lead in product(_CASES, leads):
            if lead != (2, 3) and stride is not None:
                continue
            x = make((*lead, *cut(spatial)))
            kernel, stride = full(cut(kernel)), cut(stride)
            stride = kernel if general and stride is None else stride
            args = (x, kernel, full(stride) if stride is not None else None, full(cut(padding)))
            if not average:
                yield Sample(*args, full(cut(dilation)), ceil)
            elif dilation == 1:
                rest = () if n == 1 and not general else (None,)
                yield Sample(*args, ceil, True, *rest)
                yield Sample(*args, ceil, False, *rest)
                if rest:
                    yield Sample(*args, ceil, True, 3)
        for spatial, kernel, stride, padding, dilation, ceil in _OTHER_DIMS if general else ():
            args = (make((2, 3, *spatial)), kernel, stride, padding)
            yield Sample(*args, ceil, True, None) if average else Sample(*args, dilation, ceil)

    return sampler


def adaptive_samples(n: int, general: bool = False) -> Any:
    """Sampler of ``adaptive_avg_pool{n}d`` and ``adaptive_max_pool{n}d``."""

    def cut(value: Any) -> Any:
        return (*value, value[-1])[:n]

    def sampler(make: Any) -> Iterator[Sample]:
        cases = (((4, 6), (2, 3)), ((5, 7), (3, 4)), ((7, 5), (1, 1)), ((3, 2), (5, 4)))
        for spatial, size in cases:
            yield Sample(make((2, 3, *cut(spatial))), cut(size))
            yield Sample(make((2, *cut(spatial))), cut(size))
        if general:
            yield Sample(make((2, 3, 7)), (4,))
            yield Sample(make((2, 3, 4, 3, 5)), (2, 2, 3))
        else:
            yield Sample(make((2, 3, *(5, 7, 4)[:n])), 3)
            yield Sample(make((2, 3, *(5, 7, 4)[:n])), (None, 3, 2)[-n:])

    return sampler
