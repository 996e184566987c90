"""Convolutions of bfloat16 and their gradients, where the processor multiplies it: ``dots.py``.

Sums are float32 and round once; subnormal numbers count as zero, as that is what the instructions
do. Elsewhere, for narrow groups, and for infinite numbers, ``halves`` converts.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.conv.general import forms_over, reaching_plans
from coredispatch_cpu_numba.kernels.conv.plans import (
    Convolution,
    Plan,
    forward_plan,
    weight_grad_plan,
)
from coredispatch_cpu_numba.kernels.halves import narrowed
from coredispatch_cpu_numba.kernels.linalg.products_bfloat16 import BFLOAT16, PRIORITY, has_pairs

__all__ = ["KERNELS", "LEAST", "PRIORITY", "WHEN"]

_LEAST = 512
_SPLIT = 1 << 20  # multiplications
_NARROWEST = 4  # channels of a group, where there are several
_DEEP, _LINES = 32, 16  # of a tile
_EXPONENT = 0x7F80
_pack = Loop("conv.bfloat16", "pack", 1 << 62)
_correlate = Loop("conv.bfloat16", "correlate", _SPLIT)
_products = Loop("conv.bfloat16", "weight_grad", _SPLIT)


def _fit(*arrays: Any) -> bool:
    return has_pairs() and all(_accepts(a) and a.flags.c_contiguous for a in arrays)


def _is_narrow(c: Convolution) -> bool:
    """Whether tiles would be nearly empty."""
    return c.groups > 1 and min(c.given, c.channels) < _NARROWEST


def _run(
    plan: Plan,
    x: np.ndarray,
    weight: np.ndarray,
    dense: bool,
    group: int,
    step: int,
    bias: Any,
    out: np.ndarray,
) -> None:
    """``out`` as sums of planes of ``x``; weights of a group and a channel lie apart as said."""
    groups, channels = int(plan.target[1]), int(plan.target[3])
    panels, steps = -(-channels // _LINES), -(-plan.taps.size // _DEEP)
    packed = np.zeros(groups * panels * steps * _LINES * _DEEP, BFLOAT16)
    _pack(BFLOAT16, 0, groups, weight, plan.weights, int(dense), channels, group, step, packed)
    arguments = (x, packed, bias, out, plan.source, plan.phases, plan.taps, plan.target)
    units = plan.units // int(plan.target[5])  # output channels are not shared
    _correlate(BFLOAT16, plan.work, units, *arguments, grain=1)


def _level(bias: Any, channels: int) -> np.ndarray:
    return np.zeros(channels, np.float32) if bias is None else bias.astype(np.float32)


def _forward(c: Convolution, x: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> Any:
    if _is_narrow(c):
        return NotImplemented
    out = np.empty((c.images, c.groups * c.channels, *c.out[3 - ndim :]), BFLOAT16)
    step, level = c.given * prod(c.kernel), _level(bias, c.groups * c.channels)
    _run(forward_plan(c, 1), x, weight, True, c.channels * step, step, level, out)
    return out


def _backward(c: Convolution, grad: np.ndarray, weight: np.ndarray, bias: Any, ndim: int) -> Any:
    # The planes are padded with zeros, and an infinite weight must not meet them.
    exponents = weight.view(np.uint16) & _EXPONENT
    if _is_narrow(c) or exponents.max() == _EXPONENT:
        return NotImplemented
    out = np.empty((c.images, c.groups * c.given, *c.spatial[3 - ndim :]), BFLOAT16)
    step, level = prod(c.kernel), _level(bias, c.groups * c.given)
    plans, all_reached = reaching_plans(c)
    if not all_reached:
        out[:] = level.astype(BFLOAT16).reshape(-1, *[1] * ndim)
    for plan in plans:
        _run(plan, grad, weight, False, c.channels * c.given * step, step, level, out)
    return out


def _weight_grad(
    c: Convolution, grad: np.ndarray, input: np.ndarray, shape: tuple[int, ...]
) -> Any:
    """Sums of blocks of images, added up in the end."""
    if _is_narrow(c):
        return NotImplemented
    plan = weight_grad_plan(c, False, 1, whole=True)
    out = np.empty((plan.blocks, *shape), np.float32)
    arguments = (grad, input, out, plan.source, plan.phases, plan.taps, plan.target)
    _products(BFLOAT16, plan.work, plan.units, *arguments, grain=1)
    total = out[0] if len(out) == 1 else np.add.reduce(out, 0)
    with np.errstate(all="ignore"):
        finite = np.isfinite(np.add.reduce(total, None))
    return narrowed(total, BFLOAT16) if finite else NotImplemented


def _accepts(x: Any, *others: Any) -> bool:
    return type(x) is np.ndarray and x.dtype == BFLOAT16


KERNELS: dict[str, Callable[..., Any]] = forms_over(_fit, _forward, _backward, _weight_grad)
WHEN: dict[str, Callable[..., bool]] = dict.fromkeys(KERNELS, _accepts)
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
