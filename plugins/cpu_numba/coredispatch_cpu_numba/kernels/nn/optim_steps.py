"""Fused optimizer steps over contiguous parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import is_dense, is_like, overlap
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "WHEN"]

_LEAST = 1
_SPLIT = 32768
_adam = Loop("nn.optim_steps", "adam", _SPLIT)
_sgd = Loop("nn.optim_steps", "sgd", _SPLIT)
_sgd_momentum = Loop("nn.optim_steps", "sgd_momentum", _SPLIT)
_sgd_nesterov = Loop("nn.optim_steps", "sgd_nesterov", _SPLIT)


def adam_step(
    param: np.ndarray,
    grad: np.ndarray,
    exp_avg: np.ndarray,
    exp_avg_sq: np.ndarray,
    max_exp_avg_sq: None,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> None:
    """One step of Adam or AdamW."""
    _adam(
        param.dtype,
        param.size,
        param.size,
        param,
        grad,
        exp_avg,
        exp_avg_sq,
        -1.0 if maximize else 1.0,
        0.0 if decoupled else float(weight_decay),
        1.0 - lr * weight_decay if decoupled else 1.0,
        1.0 - beta1,
        float(beta2),
        1.0 - beta2,
        1.0 / (1.0 - beta2**step) ** 0.5,
        float(eps),
        lr / (1.0 - beta1**step),
    )


def sgd_step(
    param: np.ndarray,
    grad: np.ndarray,
    momentum_buffer: np.ndarray | None,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> None:
    """One step of stochastic gradient descent."""
    own, size = param.dtype, param.size
    sign = -1.0 if maximize else 1.0
    if momentum_buffer is None:
        _sgd(own, size, size, param, grad, sign, float(weight_decay), float(lr))
        return
    if first:  # 0 * buffer would carry a NaN along, were there one in it
        momentum_buffer.fill(0.0)
    loop = _sgd_nesterov if nesterov else _sgd_momentum
    loop(
        own,
        size,
        size,
        param,
        grad,
        momentum_buffer,
        sign,
        float(weight_decay),
        float(momentum),
        1.0 if first else 1.0 - dampening,
        float(momentum),
        float(lr),
    )


def _independent(*arrays: Any) -> bool:
    """Writable where written, alike, and not overlapping: they are updated side by side."""
    param, grad, *state = arrays
    if not is_like(grad, param) or overlap(grad, param) or not param.flags.writeable:
        return False
    for i, array in enumerate(state):  # generators would cost as much again
        if not is_like(array, param) or not array.flags.writeable:
            return False
        if overlap(array, param) or overlap(array, grad):
            return False
        for other in state[:i]:
            if overlap(array, other):
                return False
    return True


def _accepts_adam(
    param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, max_exp_avg_sq: Any, *options: Any
) -> bool:
    return (
        max_exp_avg_sq is None
        and is_dense(param, _LEAST)
        and _independent(param, grad, exp_avg, exp_avg_sq)
    )


def _accepts_sgd(param: Any, grad: Any, momentum_buffer: Any, *options: Any) -> bool:
    if not is_dense(param, _LEAST):
        return False
    buffers = () if momentum_buffer is None else (momentum_buffer,)
    return _independent(param, grad, *buffers)


KERNELS: dict[str, Callable[..., None]] = {"adam_step": adam_step, "sgd_step": sgd_step}
WHEN: dict[str, Callable[..., bool]] = {"adam_step": _accepts_adam, "sgd_step": _accepts_sgd}
