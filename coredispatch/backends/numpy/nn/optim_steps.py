"""Optimizer steps in NumPy: in place, a block at a time, so that a step reads memory once.

A step is a dozen passes over a few arrays. In blocks of 16k elements these stay in the cache,
which on a million parameters is 3 times as fast as whole-array passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.backends.numpy.silence import silent

__all__ = ["KERNELS"]

Array = Any
_BLOCK = 1 << 14


def _blocks(*arrays: Array | None) -> Iterator[tuple[Any, ...]]:
    """The arrays cut into aligned blocks; whole where one of them is strided or they are small.

    Half precision is stepped in float32, in which the usual ``eps`` is not zero.
    """
    first = arrays[0]
    assert first is not None
    if first.dtype.itemsize == 2:
        wide = [None if a is None else a.astype(np.float32) for a in arrays]
        yield from _blocks(*wide)
        for a, w in zip(arrays, wide, strict=True):
            if a is not None:
                a[...] = w
        return
    if not first.ndim:  # whose results would be NumPy scalars, which out= does not take
        yield tuple(None if a is None else a.reshape(1) for a in arrays)
        return
    if first.size <= _BLOCK or not all(a is None or a.flags.c_contiguous for a in arrays):
        yield arrays
        return
    flat = [None if a is None else a.reshape(-1) for a in arrays]
    for start in range(0, first.size, _BLOCK):
        yield tuple(None if a is None else a[start : start + _BLOCK] for a in flat)


def _direction(param: Array, grad: Array, weight_decay: float, maximize: bool) -> Array:
    """The gradient to go down, with the L2 penalty's added."""
    if maximize:
        grad = np.negative(grad)
    if weight_decay:
        penalty = param * weight_decay
        penalty += grad
        return penalty
    return grad


def sgd_step(
    param: Array,
    grad: Array,
    momentum_buffer: Array | None,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> None:
    """Kernel of ``sgd_step``."""
    for p, g, buffer in _blocks(param, grad, momentum_buffer):
        d = _direction(p, g, weight_decay, maximize)
        if buffer is not None:
            if first:
                buffer[...] = d
            else:
                buffer *= momentum
                buffer += d if dampening == 0 else d * (1 - dampening)
            d = d + buffer * momentum if nesterov else buffer
        p -= d * lr


def adam_step(
    param: Array,
    grad: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    max_exp_avg_sq: Array | None,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> None:
    """Kernel of ``adam_step``."""
    rate = lr / (1 - beta1**step)
    correction = (1 - beta2**step) ** 0.5
    for p, g, m, v, top in _blocks(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq):
        if decoupled and weight_decay:
            p *= 1 - lr * weight_decay
        d = _direction(p, g, 0.0 if decoupled else weight_decay, maximize)
        scratch = d - m
        scratch *= 1 - beta1
        m += scratch
        np.multiply(d, d, scratch)
        scratch *= 1 - beta2
        v *= beta2
        v += scratch
        second = v
        if top is not None:
            second = np.maximum(top, v, out=top)
        np.sqrt(second, scratch)
        scratch /= correction
        scratch += eps
        np.divide(m, scratch, scratch)
        scratch *= rate
        p -= scratch


def rmsprop_step(
    param: Array,
    grad: Array,
    square_avg: Array,
    grad_avg: Array | None,
    momentum_buffer: Array | None,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    maximize: bool,
) -> None:
    """Kernel of ``rmsprop_step``."""
    for p, g, v, mean, buffer in _blocks(param, grad, square_avg, grad_avg, momentum_buffer):
        d = _direction(p, g, weight_decay, maximize)
        scratch = d * d
        scratch *= 1 - alpha
        v *= alpha
        v += scratch
        if mean is None:
            np.sqrt(v, scratch)
        else:
            np.subtract(d, mean, scratch)
            scratch *= 1 - alpha
            mean += scratch
            np.multiply(mean, mean, scratch)
            np.subtract(v, scratch, scratch)
            np.sqrt(scratch, scratch)
        scratch += eps
        np.divide(d, scratch, scratch)
        if buffer is not None:
            buffer *= momentum
            buffer += scratch
            np.multiply(buffer, lr, scratch)
        else:
            scratch *= lr
        p -= scratch


KERNELS = {
    "sgd_step": silent(sgd_step),
    "adam_step": silent(adam_step),
    "rmsprop_step": silent(rmsprop_step),
}
