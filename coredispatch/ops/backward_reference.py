"""NumPy references and samples of the backward operators, each by its formula in float64.

Gradient checks see these operators in float64 only, and through a forward call; here they are
operators like any other, for every dtype and layout that a fused kernel may meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.loss_reference import REDUCTIONS
from coredispatch.ops.pooling_reference import adaptive_bins, each_window
from coredispatch.ops.samples import Sample
from coredispatch.ops.windows import pool_geometry


def _near_zero(make: Any, shape: Any) -> Any:
    """Gradients and weights: no palette of large means, under which their products cancel."""
    return make(shape, low=-2.0, high=2.0)


# ---- norms ------------------------------------------------------------------------------------


def _standardized(x: Any, dims: Any, eps: float) -> tuple[Any, Any]:
    std = np.sqrt(x.var(dims, keepdims=True) + eps)
    return (x - x.mean(dims, keepdims=True)) / std, std


def _unstandardized(g: Any, normal: Any, std: Any, dims: Any) -> Any:
    mean = g.mean(dims, keepdims=True)
    return (g - mean - normal * (g * normal).mean(dims, keepdims=True)) / std


def layer_norm_backward_reference(grad_output, input, normalized_shape, weight, eps):
    """Gradients of input, weight and bias."""
    n = len(normalized_shape)
    dims, lead = tuple(range(-n, 0)), tuple(range(input.ndim - n))
    normal, std = _standardized(input, dims, eps)
    g = grad_output if weight is None else grad_output * weight
    return (
        _unstandardized(g, normal, std, dims),
        (grad_output * normal).sum(lead),
        grad_output.sum(lead),
    )


def rms_norm_backward_reference(grad_output, input, normalized_shape, weight, eps):
    """Gradients of input and weight."""
    n = len(normalized_shape)
    dims, lead = tuple(range(-n, 0)), tuple(range(input.ndim - n))
    rms = np.sqrt((input**2).mean(dims, keepdims=True) + eps)
    normal = input / rms
    g = grad_output if weight is None else grad_output * weight
    input_grad = (g - normal * (g * normal).mean(dims, keepdims=True)) / rms
    return input_grad, (grad_output * normal).sum(lead)


def _by_channel(v: Any, x: Any) -> Any:
    return v.reshape(-1, *(1,) * (x.ndim - 2))


def group_norm_backward_reference(grad_output, input, num_groups, weight, eps):
    """Gradients of input, weight and bias."""
    grouped = (input.shape[0], num_groups, -1)
    normal, std = _standardized(input.reshape(grouped), (2,), eps)
    g = grad_output if weight is None else grad_output * _by_channel(weight, input)
    others = (0, *range(2, input.ndim))
    return (
        _unstandardized(g.reshape(grouped), normal, std, (2,)).reshape(input.shape),
        (grad_output * normal.reshape(input.shape)).sum(others),
        grad_output.sum(others),
    )


def batch_norm_backward_reference(grad_output, mean_grad, var_grad, input, weight, mean, var, eps):
    """Gradients of input, weight and bias, from those of the result and of both statistics."""
    others = (0, *range(2, input.ndim))
    count = input.size // input.shape[1]
    std = np.sqrt(var + eps)
    centered = input - _by_channel(mean, input)
    bias_grad = grad_output.sum(others)
    weight_grad = (grad_output * centered).sum(others) / std
    scale = (1 if weight is None else weight) / std
    slope = 2 * var_grad - scale / std * weight_grad
    level = mean_grad - scale * bias_grad
    input_grad = (
        grad_output * _by_channel(scale, input)
        + (centered * _by_channel(slope, input) + _by_channel(level, input)) / count
    )
    return input_grad, weight_grad, bias_grad


def layer_backward_samples(make: Any) -> Iterator[Sample]:
    """One and two normalized dimensions, short and long rows."""
    for shape, n in (((5,), 1), ((3, 5), 1), ((8, 8), 1), ((2, 3, 4), 2), ((3, 257), 1)):
        last = shape[-n:]
        grad, weight = _near_zero(make, shape), _near_zero(make, last)
        yield Sample(grad, make(shape), last, weight, 1e-3)
        yield Sample(grad, make(shape), last, None, 1e-3)


def group_backward_samples(make: Any) -> Iterator[Sample]:
    """One and several groups."""
    for shape in ((2, 4, 5), (2, 4, 3, 3)):
        grad, weight = _near_zero(make, shape), _near_zero(make, 4)
        for groups in (1, 2):
            yield Sample(grad, make(shape), groups, weight, 1e-3)
        yield Sample(grad, make(shape), 2, None, 1e-3)


def batch_backward_samples(make: Any) -> Iterator[Sample]:
    """2-d to 4-d inputs; the statistics get gradients too."""
    for shape in ((6, 4), (2, 4, 5), (2, 4, 3, 3)):
        for weight in (_near_zero(make, 4), None):
            grads = _near_zero(make, shape), _near_zero(make, 4), _near_zero(make, 4)
            yield Sample(*grads, make(shape), weight, make(4), make.positive(4), 1e-3)


# ---- cross entropy ----------------------------------------------------------------------------


def cross_entropy_backward_reference(
    grad_output, input, target, weight, ignore_index, reduction, label_smoothing
):
    """``softmax * sum(q) - q``, row by row."""
    dim = 0 if input.ndim == 1 else 1
    classes = input.shape[dim]
    x = np.moveaxis(input, dim, -1)
    p = np.exp(x - x.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    w = np.ones(classes) if weight is None else weight
    if target.dtype.kind == "f":
        q = np.moveaxis(target, dim, -1) * (1 - label_smoothing) + label_smoothing / max(classes, 1)
        q, divisor = q * w, q.size // max(classes, 1)
    else:
        kept = (target != ignore_index)[..., None]
        index = np.where(kept[..., 0], target, 0)
        own = (w[index] * kept[..., 0])[..., None]
        q = label_smoothing / max(classes, 1) * w * kept
        q = q + (1 - label_smoothing) * own * (np.arange(classes) == index[..., None])
        divisor = own.sum()
    scale = grad_output[..., None] if reduction == "none" else grad_output
    if reduction == "mean":
        scale = scale / divisor
    return np.moveaxis((p * q.sum(-1, keepdims=True) - q) * scale, -1, dim)


def cross_entropy_backward_samples(make: Any) -> Iterator[Sample]:
    """Classes and probabilities, every reduction, with and without weights and smoothing."""
    for shape in ((3,), (4, 3), (8, 8), (2, 5, 2, 3)):
        classes = shape[0] if len(shape) == 1 else shape[1]
        rest = () if len(shape) == 1 else (shape[0], *shape[2:])
        target = make.index(rest, classes)
        for reduction in REDUCTIONS:
            grad = make(rest if reduction == "none" else ())
            yield Sample(grad, make(shape), target, None, -100, reduction, 0.0)
            options = make.positive((classes,)), -100, reduction, 0.1
            yield Sample(grad, make(shape), target, *options)
            yield Sample(grad, make(shape), make.positive(shape), *options)


# ---- pooling ----------------------------------------------------------------------------------


def max_pool_backward_reference(
    grad_output, input, kernel_size, stride, padding, dilation, ceil_mode
):
    """Each window's gradient added to the first of its maxima."""
    n = len(kernel_size)
    lead, spatial = input.shape[:-n], input.shape[-n:]
    result = np.zeros((int(np.prod(lead)), *spatial))
    planes = input.reshape(result.shape)
    grads = grad_output.reshape(len(planes), *grad_output.shape[-n:])
    options = kernel_size, stride, padding, dilation, ceil_mode
    for place, positions in each_window(spatial, *options):
        at = np.ix_(*positions)
        for plane, total, grad in zip(planes, result, grads):
            window = plane[at]
            first = np.unravel_index(window.argmax(), window.shape)
            total[tuple(p[i] for p, i in zip(positions, first))] += grad[place]
    return result.reshape(input.shape)


def avg_pool_backward_reference(
    grad_output,
    input_shape,
    kernel_size,
    stride,
    padding,
    ceil_mode,
    count_include_pad,
    divisor_override,
):
    """Each window's gradient shared among its elements."""
    n = len(kernel_size)
    spatial = input_shape[-n:]
    result = np.zeros(input_shape)
    options = kernel_size, stride, padding, (1,) * n, ceil_mode
    for place, positions in each_window(spatial, *options):
        count = divisor_override or 1
        if divisor_override is None:
            for i, inside in enumerate(positions):
                start = place[i] * stride[i] - padding[i]
                whole = min(start + kernel_size[i], spatial[i] + padding[i]) - start
                count *= whole if count_include_pad else len(inside)
        share = grad_output[(..., *place)] / count
        result[(..., *np.ix_(*positions))] += share[(..., *(None,) * n)]
    return result


def adaptive_backward_reference(grad_output, input_shape, output_size):
    """Each window's gradient shared among its elements."""
    n = len(output_size)
    result = np.zeros(input_shape)
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


def max_backward_samples(make: Any) -> Iterator[Sample]:
    """Windows apart, overlapping and dilated; ties."""
    for spatial, *options in _WINDOWS:
        output, _ = pool_geometry(spatial, *options)
        yield Sample(make((2, 3, *output)), make((2, 3, *spatial)), *options)


def avg_backward_samples(make: Any) -> Iterator[Sample]:
    """Windows apart and overlapping, with every way to count."""
    for spatial, kernel, stride, padding, dilation, ceil in _WINDOWS:
        if dilation != (1, 1):
            continue
        output, _ = pool_geometry(spatial, kernel, stride, padding, dilation, ceil)
        for counting in ((True, None), (False, None), (True, 3)):
            options = kernel, stride, padding, ceil, *counting
            yield Sample(make((2, 3, *output)), (2, 3, *spatial), *options)


def adaptive_backward_samples(make: Any) -> Iterator[Sample]:
    """Windows that divide the size, overlap, or are one."""
    for spatial, size in (((4, 6), (2, 3)), ((5, 7), (3, 4)), ((7, 5), (1, 1)), ((3, 2), (5, 4))):
        yield Sample(make((2, 3, *size)), (2, 3, *spatial), size)


# ---- embedding and columns --------------------------------------------------------------------


def embedding_backward_reference(
    grad_output, indices, num_weights, padding_idx, scale_grad_by_freq
):
    """Rows added by index."""
    result = np.zeros((num_weights, grad_output.shape[-1]))
    np.add.at(result, indices, grad_output)
    if scale_grad_by_freq:
        counts = np.bincount(indices.reshape(-1), minlength=num_weights)
        result /= np.maximum(counts, 1)[:, None]
    if padding_idx is not None:
        result[padding_idx] = 0
    return result


def embedding_backward_samples(make: Any) -> Iterator[Sample]:
    """Few and many repeated indices; a padding row; scaling."""
    for shape in ((), (5,), (3, 4), (0,)):
        yield Sample(make((*shape, 3)), make.index(shape, 7), 7, None, False)
    yield Sample(make((17, 5)), make.index((17,), 3), 3, 1, True)
    yield Sample(make((300, 9)), make.index((300,), 20), 21, 2, False)


def col2im_reference(input, output_size, kernel_size, dilation, padding, stride):
    """Columns added window by window."""
    k, d, p, s = kernel_size, dilation, padding, stride
    places = [
        (n + 2 * a - b * (c - 1) - 1) // e + 1 for n, a, b, c, e in zip(output_size, p, d, k, s)
    ]
    channels = input.shape[1] // (k[0] * k[1])
    columns = input.reshape(input.shape[0], channels, *k, *places)
    padded = np.zeros((input.shape[0], channels, *(n + 2 * a for n, a in zip(output_size, p))))
    for i, j in np.ndindex(*k):
        rows = slice(i * d[0], i * d[0] + (places[0] - 1) * s[0] + 1, s[0])
        across = slice(j * d[1], j * d[1] + (places[1] - 1) * s[1] + 1, s[1])
        padded[:, :, rows, across] += columns[:, :, i, j]
    return padded[:, :, p[0] : p[0] + output_size[0], p[1] : p[1] + output_size[1]]


def col2im_samples(make: Any) -> Iterator[Sample]:
    """Windows apart, overlapping, dilated and padded."""
    yield Sample(make((2, 12, 20)), (6, 5), (2, 2), (1, 1), (0, 0), (1, 1))
    yield Sample(make((1, 6, 9)), (6, 7), (3, 2), (1, 1), (1, 0), (2, 2))
    yield Sample(make((1, 4, 16)), (6, 6), (2, 2), (2, 2), (0, 0), (1, 1))
