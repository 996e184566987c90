"""Convolutions of contiguous arrays and their gradients, in one to three dimensions.

Every stride, dilation and number of groups, transposed or not. Sums over channels and kernel
positions are made one after the other in the dtype of the arrays: the error is within
``K eps sum |input weight|`` for ``K`` products, as for a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import FLOATS
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.conv.plans import (
    Convolution,
    Plan,
    forward_plan,
    input_grad_plans,
    weight_grad_plan,
)

__all__ = [
    "FORMS",
    "KERNELS",
    "LEAST",
    "add_special",
    "correlate",
    "exact_weight_grad",
    "fit",
    "forms_over",
    "is_finite",
    "is_worth",
    "multiply_planes",
    "reaching_plans",
    "tamed",
]

_LEAST = 64
_SPLIT = 200_000  # multiplications
_SMALL = 500
_POINTWISE, _FEW, _MANY_WEIGHTS = 512, 64, 4096
_pack = Loop("conv.general", "pack", 1 << 62)
_correlate = Loop("conv.general", "correlate", _SPLIT)
_products = Loop("conv.general", "weight_grad", _SPLIT)


@lru_cache(maxsize=256)
def _described(
    shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    out: tuple[int, ...] | None,
    worth: Callable[[Convolution], bool],
) -> Convolution | None:
    """The convolution of an input of ``shape``; None if no loop serves it, or none is worth it.

    ``out`` is the shape of the output where the caller has it, and must be the right one.
    """
    ndim = len(shape) - 2
    if not 1 <= ndim <= 3 or len(weight_shape) != len(shape) or groups < 1:
        return None
    options = []
    for values, least in ((stride, 1), (padding, 0), (dilation, 1)):
        values = values * ndim if len(values) == 1 else values
        if len(values) != ndim or min(values) < least:
            return None
        options.append((*(least,) * (3 - ndim), *values))
    one = (1,) * (3 - ndim)
    spatial, kernel = (*one, *shape[2:]), (*one, *weight_shape[2:])
    if weight_shape[0] % groups or shape[1] != weight_shape[1] * groups:
        return None
    sizes = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(spatial, kernel, *options, strict=True)
    )
    if min(sizes) < 1 or 0 in shape or 0 in weight_shape:
        return None
    if out is not None and out != (shape[0], weight_shape[0], *sizes[3 - ndim :]):
        return None
    channels = weight_shape[0] // groups
    c = Convolution(shape[0], groups, weight_shape[1], channels, spatial, sizes, kernel, *options)
    return c if worth(c) else None


def _options(*values: Any) -> list[tuple[int, ...]]:
    return [v if type(v) is tuple else (v,) if type(v) is int else tuple(v) for v in values]


def fit(*arrays: Any) -> bool:
    """Whether the arrays are contiguous and of one floating dtype."""
    dtype = arrays[0].dtype
    if dtype not in FLOATS:
        return False
    for a in arrays:  # a generator costs as much again
        own = type(a) is np.ndarray and (a.dtype is dtype or a.dtype == dtype)
        if not (own and a.flags.c_contiguous):
            return False
    return True


@lru_cache(maxsize=64)
def _zeros(n: int, dtype: np.dtype[Any]) -> np.ndarray:
    return np.zeros(n, dtype)


def correlate(
    plan: Plan,
    x: np.ndarray,
    weight: np.ndarray,
    adjoint: bool,
    bias: Any,
    out: np.ndarray,
    run: Callable[..., None] = Loop.__call__,
    empty: Callable[..., np.ndarray] = np.empty,
) -> None:
    """``out`` as sums of planes of ``x``.

    Args:
        adjoint: whether the weights are those of the convolution that this one is the adjoint of
        run: ``run(loop, *arguments)`` runs a loop, or keeps it to be run later
        empty: makes the memory that is needed only meanwhile
    """
    own, groups, channels = out.dtype, int(plan.target[1]), int(plan.target[3])
    apart = weight.size // groups, prod(weight.shape[1 + adjoint :])  # groups, channels
    packed = empty(groups * channels * plan.taps.size, own)
    run(_pack, own, 0, groups, weight, plan.weights, channels, *apart, packed)
    bias = _zeros(groups * channels, own) if bias is None else bias
    arguments = (x, packed, bias, out, plan.source, plan.phases, plan.taps, plan.target)
    run(_correlate, own, plan.work, plan.units, *arguments, weight=16384)


def _forward(c: Convolution, x: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> np.ndarray:
    out = np.empty((c.images, c.groups * c.channels, *c.out[3 - ndim :]), x.dtype)
    correlate(forward_plan(c, thread_count.wanted), x, weight, False, bias, out)
    return out


def _backward(c: Convolution, grad: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> Any:
    out = np.empty((c.images, c.groups * c.given, *c.spatial[3 - ndim :]), grad.dtype)
    finite, tame = tamed(weight)
    plans, all_reached = reaching_plans(c)
    if not all_reached:
        out[:] = 0 if bias is None else bias.reshape(-1, *[1] * ndim)
    for plan in plans:
        correlate(plan, grad, tame, True, bias, out)
    if not finite:
        add_special(c, grad, weight, out, ndim)
    return out


def reaching_plans(c: Convolution) -> tuple[list[Plan], bool]:
    """The plans of the phases that windows reach, and whether these are all phases."""
    plans = input_grad_plans(c, thread_count.wanted)
    reaching = [plan for plan in plans if plan.taps.size]
    return reaching, len(reaching) == len(plans)


def tamed(weight: np.ndarray) -> tuple[bool, np.ndarray]:
    """Whether all weights are finite, and the weights with 0 for those that are not.

    The planes are padded with zeros, and an infinite weight must not meet them.
    """
    if is_finite(weight):
        return True, weight
    return False, np.where(np.isfinite(weight), weight, weight.dtype.type(0))


def is_finite(x: np.ndarray) -> bool:
    """Whether all elements are finite; False also where their sum overflows."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.add.reduce(x, None)))


def add_special(
    c: Convolution, grad: np.ndarray, weight: np.ndarray, out: np.ndarray, ndim: int
) -> None:
    """Add what infinite and NaN weights give to the positions that their windows reach."""
    shape = (c.kernel, c.stride, c.padding, c.dilation, c.spatial, c.out)
    for o, i, *position in np.argwhere(~np.isfinite(weight)):
        given, reached = [], []
        where = zip(position, *(values[3 - ndim :] for values in shape), strict=True)
        for k, _, s, p, d, n, m in where:
            first, stop = max(0, -((k * d - p) // s)), min(m, (n - 1 + p - k * d) // s + 1)
            given.append(slice(first, max(first, stop)))
            start = first * s + k * d - p
            reached.append(slice(start, start + max(0, stop - first) * s, s))
        channel = o // c.channels * c.given + i
        with np.errstate(all="ignore"):
            out[:, channel][:, *reached] += weight[o, i, *position] * grad[:, o][:, *given]


def is_worth(c: Convolution) -> bool:
    """Whether the loops beat NumPy's matrix products.

    Not for a few multiplications; nor where many weights, which are packed first, meet only a few
    positions; nor where there is nothing to gather and the product is small.
    """
    positions, weights = c.images * prod(c.out), c.given * c.channels * prod(c.kernel)
    if prod(c.kernel) == 1:
        needed = _POINTWISE
    else:
        needed = _FEW if weights >= _MANY_WEIGHTS else 0
    return positions >= needed and positions * weights * c.groups >= _SMALL


def _weight_grad(
    c: Convolution, grad: np.ndarray, input: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """Sums of blocks of images, added up in the end."""
    result = _weight_sums(c, grad, input, shape, False)
    return result if is_finite(result) else exact_weight_grad(c, grad, input, shape)


def exact_weight_grad(
    c: Convolution, grad: np.ndarray, input: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """The gradient where numbers are infinite or NaN: no zero but those of the arrays counts."""
    return _weight_sums(c, grad, input, shape, True)


def _weight_sums(
    c: Convolution, grad: np.ndarray, input: np.ndarray, shape: tuple[int, ...], exact: bool
) -> np.ndarray:
    plan = weight_grad_plan(c, exact, thread_count.wanted)
    out = np.empty((plan.blocks, *shape), input.dtype)
    multiply_planes(plan, grad, input, out)
    return out[0] if len(out) == 1 else np.add.reduce(out, 0)


def multiply_planes(
    plan: Plan,
    grad: np.ndarray,
    x: np.ndarray,
    out: np.ndarray,
    run: Callable[..., None] = Loop.__call__,
) -> None:
    """``out`` as the gradients of the weight, one for each block of images."""
    arguments = (grad, x, out, plan.source, plan.phases, plan.taps, plan.target)
    run(_products, out.dtype, plan.work, plan.units, *arguments, weight=16384)


def forms_over(
    fits: Callable[..., bool],
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    weight_grad: Callable[..., Any],
    worth: Callable[[Convolution], bool] = is_worth,
) -> dict[str, Callable[..., Any]]:
    """The operators of convolution, by name.

    Args:
        fits: whether arrays have the layout and the dtype that the others take
        forward: ``(c, x, weight, bias, ndim)``
        backward: its adjoint, ``(c, grad, weight, bias, ndim)``
        weight_grad: ``(c, grad, x, shape)``
        worth: whether it is worth it; what is not is left to others
    """

    def convolution(
        input: np.ndarray,
        weight: np.ndarray,
        bias: Any,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
    ) -> Any:
        """``input`` correlated with ``weight``, plus ``bias``; transposed, the adjoint of that."""
        if not (fits(input, weight) and (bias is None or fits(input, bias))):
            return NotImplemented
        ndim = input.ndim - 2
        stride, padding, dilation, more = _options(stride, padding, dilation, output_padding)
        if min(more, default=0) < 0:
            return NotImplemented  # the rule of the operator says what is wrong
        shape = input.shape
        if transposed:
            if groups < 1 or not 1 <= ndim <= 3 or weight.ndim != input.ndim:
                return NotImplemented
            stride, padding, dilation, more = (
                v * ndim if len(v) == 1 else v for v in (stride, padding, dilation, more)
            )
            given = zip(shape[2:], weight.shape[2:], stride, padding, dilation, more)
            sizes = tuple((n - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, k, s, p, d, o in given)
            shape = (shape[0], weight.shape[1] * groups, *sizes)
            options = stride, padding, dilation
            c = _described(shape, weight.shape, *options, groups, input.shape, worth)
            channels = weight.shape[1] * groups
        else:
            c = _described(shape, weight.shape, stride, padding, dilation, groups, None, worth)
            channels = weight.shape[0]
        if c is None or (bias is not None and bias.shape != (channels,)):
            return NotImplemented
        return (backward if transposed else forward)(c, input, weight, bias, ndim)

    def conv_input_grad(
        grad: np.ndarray,
        weight: np.ndarray,
        input_shape: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> Any:
        """The gradient of the input."""
        if not fits(grad, weight):
            return NotImplemented
        options = _options(stride, padding, dilation)
        c = _described(tuple(input_shape), weight.shape, *options, groups, grad.shape, worth)
        if c is None:
            return NotImplemented
        return backward(c, grad, weight, None, grad.ndim - 2)

    def conv_weight_grad(
        grad: np.ndarray,
        input: np.ndarray,
        weight_shape: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> Any:
        """The gradient of the weight."""
        if not fits(grad, input):
            return NotImplemented
        options = _options(stride, padding, dilation)
        c = _described(input.shape, tuple(weight_shape), *options, groups, grad.shape, worth)
        if c is None:
            return NotImplemented
        return weight_grad(c, grad, input, tuple(weight_shape))

    return {
        "convolution": convolution,
        "conv_input_grad": conv_input_grad,
        "conv_weight_grad": conv_weight_grad,
    }


#: the convolution, its adjoint, and the gradient of the weight
FORMS = _forward, _backward, _weight_grad
KERNELS: dict[str, Callable[..., Any]] = forms_over(fit, *FORMS)
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
