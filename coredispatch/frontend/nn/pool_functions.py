"""Functions of windows beside the pooling operators: power means, fractional pools, unpooling."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

from coredispatch.frontend.argument_types import IntList
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import ArgumentError
from coredispatch.registry.wiring import GRAPH

__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]

_op = TABLE.operator
_arange = _op("arange")


def _sizes(value: Any, n: int) -> tuple[int, ...]:
    given: tuple[Any, ...] = (value,) * n if isinstance(value, numbers.Number) else tuple(value)
    return given


# ---- power means ------------------------------------------------------------------------------


def _lp_pool(
    n: int, input: Any, norm_type: Any, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Any:
    sizes = _sizes(kernel_size, n)
    stride = None if stride is None or stride == () else _sizes(stride, n)
    mean = _op(f"avg_pool{n}d")(input.pow(norm_type), sizes, stride, 0, ceil_mode)
    # The root of a sum below 0 (of an odd power) is NaN.
    return (mean.sign() * mean.abs().relu() * math.prod(sizes)).pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: IntList,
    stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """``(sum x^p)^(1/p)`` of each window of ``(N, C, L)``, ``p = norm_type``."""
    result: Tensor = _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)
    return result


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: IntList,
    stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """``(sum x^p)^(1/p)`` of each window of ``(N, C, H, W)``, ``p = norm_type``."""
    result: Tensor = _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)
    return result


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: IntList,
    stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """``(sum x^p)^(1/p)`` of each window of ``(N, C, D, H, W)``, ``p = norm_type``."""
    result: Tensor = _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
    return result


# ---- unpooling --------------------------------------------------------------------------------


def _unpooled_size(
    input: Any, kernel: tuple[int, ...], stride: Any, padding: Any, output_size: Any
) -> tuple[int, ...]:
    n = len(kernel)
    spatial = tuple(input.shape[-n:])
    default = tuple(
        (size - 1) * s + k - 2 * p for size, s, k, p in zip(spatial, stride, kernel, padding)
    )
    if output_size is None:
        return tuple(map(operator.index, default))
    given = tuple(output_size)
    if len(given) == n + 2:
        given = given[2:]
    if len(given) != n:
        raise ValueError(
            "output_size should be a sequence containing "
            f"{n} or {n + 2} elements, but it has a length of '{len(given)}'"
        )
    for i, size in enumerate(given):
        low, high = default[i] - stride[i], default[i] + stride[i]
        if not low < size < high:
            raise ValueError(
                f'invalid output_size "{given}" (dim {i} must be between {low} and {high})'
            )
    return tuple(map(operator.index, given))


def _max_unpool(
    n: int,
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
) -> Any:
    kernel = _sizes(kernel_size, n)
    stride = kernel if stride is None else _sizes(stride, n)
    size = _unpooled_size(input, kernel, stride, _sizes(padding, n), output_size)
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Input to max_unpooling{n}d should be a {n + 1}d or {n + 2}d Tensor, but got a tensor "
            f"with {input.ndim} dims."
        )
    if tuple(indices.shape) != tuple(input.shape):
        raise RuntimeError(
            "Expected shape of indices to be same as that of the input tensor "
            f"({list(input.shape)}) but got indices tensor with shape: {list(indices.shape)}"
        )
    if indices.dtype.name != "int64":
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    lead = tuple(input.shape[:-n])
    count = math.prod(size)
    indices = TABLE.operator("checked")(indices, indices, 0, count - 1, "unpooled")
    empty = input.new_zeros((*lead, count))
    result = empty.scatter(-1, indices.flatten(-n), input.flatten(-n)).reshape(*lead, *size)
    GRAPH.name_results(result, -1, "SqueezeBackward1" if n == 1 else f"MaxUnpool{n}DBackward0")
    return result


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    output_size: Any = None,
) -> Tensor:
    """Put ``input`` to the positions ``indices`` of :func:`max_pool1d`, among zeros."""
    options = indices, kernel_size, stride, padding, output_size
    result: Tensor = _max_unpool(1, input, *options)
    return result


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    output_size: Any = None,
) -> Tensor:
    """Put ``input`` to the positions ``indices`` of :func:`max_pool2d`, among zeros."""
    options = indices, kernel_size, stride, padding, output_size
    result: Tensor = _max_unpool(2, input, *options)
    return result


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    output_size: Any = None,
) -> Tensor:
    """Put ``input`` to the positions ``indices`` of :func:`max_pool3d`, among zeros."""
    options = indices, kernel_size, stride, padding, output_size
    result: Tensor = _max_unpool(3, input, *options)
    return result


# ---- fractional pools. Graham, 2014 -----------------------------------------------------------


def _starts(samples: Any, source: int, target: int, window: int) -> Any:
    """First positions ``(N, C, target)`` of windows that lie at random, evenly on the whole."""
    place = _arange(target, device=samples.device)
    shift = samples.unsqueeze(-1)
    if target > 1:
        alpha = (source - window) / (target - 1)
        starts = ((place + shift) * alpha).trunc() - (shift * alpha).trunc()
    else:
        starts = place + shift * 0
    last = place == target - 1
    return starts.masked_fill(last, source - window).long()


def _fractional(
    n: int,
    input: Any,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    random_samples: Any,
) -> tuple[Any, Any]:
    if output_size is None and output_ratio is None:
        raise ValueError(
            f"fractional_max_pool{n}d requires specifying either an output_size or an output_ratio"
        )
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"fractional_max_pool{n}d(): Expected {n + 1}D or {n + 2}D tensor, "
            f"but got {list(input.shape)}"
        )
    kernel, sources = _sizes(kernel_size, n), tuple(input.shape[-n:])
    if output_size is None:
        ratios = (output_ratio,) * n if isinstance(output_ratio, float) else tuple(output_ratio)
        targets = tuple(int(size * ratio) for size, ratio in zip(sources, ratios))
    else:
        targets = _sizes(output_size, n)
    for source, target, window in zip(sources, targets, kernel):
        if window < 1 or target < 1:
            raise ArgumentError(
                f"fractional_max_pool{n}d(): kernel size {window} and output size {target} have "
                "to be positive",
                fix="use windows of an element or more",
            )
        # PyTorch's volumes have a position more than windows need.
        if target + window - 1 > source - (n == 3):
            raise RuntimeError(
                f"fractional_max_pool{n}d(): pool size {window} too large relative to "
                f"input size {source}"
            )
    batched = input.ndim == n + 2
    x = input if batched else input.unsqueeze(0)
    batch, channels = x.shape[:2]
    if random_samples is None:
        random_samples = x.new_empty((batch, channels, n)).uniform_()
    flat: Any = None
    for i, (source, target, window) in enumerate(zip(sources, targets, kernel)):
        # As in PyTorch the samples of an image stand in the order width, height.
        sample = random_samples[:, :, 1 - i if n == 2 else i]
        starts = _starts(sample, source, target, window)
        within = starts.unsqueeze(-1) + _arange(window, device=x.device)
        shape = [batch, channels] + [1] * (2 * n)
        shape[2 + i], shape[2 + n + i] = target, window
        within = within.reshape(shape)
        flat = within if flat is None else flat * source + within
    flat = flat.expand(batch, channels, *targets, *kernel).flatten(-n)
    elements = x.flatten(2).gather(2, flat.flatten(2)).reshape(tuple(flat.shape))
    values, which = elements.max(-1)
    GRAPH.name_results(values, -1, f"FractionalMaxPool{n}DBackward0")
    indices = flat.gather(-1, which.unsqueeze(-1)).squeeze(-1)
    return (values, indices) if batched else (values.squeeze(0), indices.squeeze(0))


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: IntList,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> tuple[Tensor, Tensor]:
    """Maxima of windows at random places, ``output_size`` of them or by ``output_ratio``.

    Returns them and their positions in the flattened plane. Graham, "Fractional max-pooling", 2014.
    """
    return _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: IntList,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> tuple[Tensor, Tensor]:
    """:func:`fractional_max_pool2d_with_indices` of volumes."""
    return _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: IntList,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """Maxima of windows at random places, and their positions with ``return_indices``."""
    both = _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return both if return_indices else both[0]


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: IntList,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """:func:`fractional_max_pool2d` of volumes."""
    both = _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return both if return_indices else both[0]
