"""Fused optimizer steps over contiguous parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, is_dense, is_like, overlap
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.lists import accepts, run_each

__all__ = ["KERNELS", "WHEN"]

_LEAST = 1
_SPLIT = 32768
_adagrad = Loop("nn.optim_steps", "adagrad", _SPLIT)
_adam = Loop("nn.optim_steps", "adam", _SPLIT)
_adamax = Loop("nn.optim_steps", "adamax", _SPLIT)
_amsgrad = Loop("nn.optim_steps", "amsgrad", _SPLIT)
_asgd = Loop("nn.optim_steps", "asgd", _SPLIT)
_nadam = Loop("nn.optim_steps", "nadam", _SPLIT)
_rmsprop = Loop("nn.optim_steps", "rmsprop", _SPLIT)
_rmsprop_momentum = Loop("nn.optim_steps", "rmsprop_momentum", _SPLIT)
_sgd = Loop("nn.optim_steps", "sgd", _SPLIT)
_sgd_momentum = Loop("nn.optim_steps", "sgd_momentum", _SPLIT)
_sgd_nesterov = Loop("nn.optim_steps", "sgd_nesterov", _SPLIT)


def adam_step(
    param: np.ndarray,
    grad: np.ndarray,
    exp_avg: np.ndarray,
    exp_avg_sq: np.ndarray,
    max_exp_avg_sq: np.ndarray | None,
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
    numbers = _adam_numbers(step, lr, beta1, beta2, eps, weight_decay, decoupled, maximize)
    size = param.size
    own, moments = param.dtype, (param, exp_avg, exp_avg_sq)
    if max_exp_avg_sq is None:
        _adam(own, size, size, *moments, grad, *numbers)
    else:
        _amsgrad(own, size, size, *moments, max_exp_avg_sq, grad, *numbers)


def _adam_numbers(
    step: float,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> tuple[float, ...]:
    """The numbers of the loop."""
    return (
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
        momentum_buffer,
        grad,
        sign,
        float(weight_decay),
        float(momentum),
        1.0 if first else 1.0 - dampening,
        float(momentum),
        float(lr),
    )


def sgd_steps(
    params: Any,
    grads: Any,
    momentum_buffers: Any,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> Any:
    """The steps of several parameters."""
    sign, penalty, rate = -1.0 if maximize else 1.0, float(weight_decay), float(lr)
    if not momentum_buffers:
        return run_each(_sgd, (params, grads, sign, penalty, rate), 1)
    loop = _sgd_nesterov if nesterov else _sgd_momentum
    fresh, m = 1.0 if first else 1.0 - dampening, float(momentum)
    columns = params, momentum_buffers, grads
    if first and accepts(columns, 2):  # as above
        for buffer in momentum_buffers:
            buffer.fill(0.0)
    return run_each(loop, (*columns, sign, penalty, m, fresh, m, rate), 2)


def adam_steps(
    params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, max_exp_avg_sqs: Any, *numbers: Any
) -> Any:
    """The steps of several parameters."""
    written = params, exp_avgs, exp_avg_sqs
    values = _adam_numbers(*numbers)
    if max_exp_avg_sqs:
        return run_each(_amsgrad, (*written, max_exp_avg_sqs, grads, *values), 4)
    return run_each(_adam, (*written, grads, *values), 3)


def capturable_adam_steps(
    params: Any,
    grads: Any,
    exp_avgs: Any,
    exp_avg_sqs: Any,
    max_exp_avg_sqs: Any,
    state_steps: Any,
    found_inf: Any,
    lr: Any,
    beta1: float,
    beta2: float,
    *rest: Any,
) -> Any:
    """The steps of several parameters, those of the same number in one call."""
    if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
        return NotImplemented
    loop, written = (_amsgrad, 4) if max_exp_avg_sqs else (_adam, 3)
    largest = (max_exp_avg_sqs,) if max_exp_avg_sqs else ()
    columns = params, exp_avgs, exp_avg_sqs, *largest, grads
    if not accepts(columns, written) or not _are_counters(state_steps, len(params)):
        return NotImplemented
    if any(isinstance(x, np.ndarray) and x.size != 1 for x in (found_inf, lr)):
        return NotImplemented
    if found_inf is not None and found_inf.item() != 0:
        return None
    rate = lr.item() if isinstance(lr, np.ndarray) else float(lr)
    by_count: dict[float, list[int]] = {}
    for row, step in enumerate(state_steps):
        by_count.setdefault(step.item() + 1.0, []).append(row)
    for count, rows in by_count.items():
        some = [[column[row] for row in rows] for column in columns]
        run_each(loop, (*some, *_adam_numbers(count, rate, beta1, beta2, *rest)), written)
    for step in state_steps:  # at last: nothing is written where the loop is not there yet
        step += 1
    return None


def _are_counters(steps: Any, count: int) -> bool:
    """Whether each of so many rows has a number of steps of its own."""
    if len({*map(id, steps)}) != count:
        return False
    return all(x.ndim == 0 and x.dtype in FLOATS and x.flags.writeable for x in steps)


def nadam_step(
    param: np.ndarray,
    grad: np.ndarray,
    exp_avg: np.ndarray,
    exp_avg_sq: np.ndarray,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    grad_share: float,
    average_share: float,
    decoupled: bool,
    maximize: bool,
) -> None:
    """One step of NAdam."""
    options = step, lr, beta1, beta2, eps, weight_decay, decoupled, maximize
    *numbers, _ = _adam_numbers(*options)
    arrays, size = (param, exp_avg, exp_avg_sq, grad), param.size
    rates = float(lr * grad_share), float(lr * average_share)
    _nadam(param.dtype, size, size, *arrays, *numbers, *rates, 0.0)


def radam_step(
    param: np.ndarray,
    grad: np.ndarray,
    exp_avg: np.ndarray,
    exp_avg_sq: np.ndarray,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> None:
    """One step of RAdam."""
    options = step, lr, beta1, beta2, eps, weight_decay, decoupled, maximize
    *numbers, _, smallest, rate = _adam_numbers(*options)
    left = 1 - beta2**step
    longest = 2 / (1 - beta2) - 1
    rho = longest - 2 * step * beta2**step / left
    plain = rho <= 5
    if not plain:
        numerator = (rho - 4) * (rho - 2) * longest
        rate *= (numerator / ((longest - 4) * (longest - 2) * rho) * left) ** 0.5
    arrays, size = (param, exp_avg, exp_avg_sq, grad), param.size
    _nadam(param.dtype, size, size, *arrays, *numbers, 1.0, smallest, 0.0, rate, float(plain))


def adamax_step(
    param: np.ndarray,
    grad: np.ndarray,
    exp_avg: np.ndarray,
    exp_inf: np.ndarray,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of Adamax."""
    size = param.size
    _adamax(
        param.dtype,
        size,
        size,
        param,
        exp_avg,
        exp_inf,
        grad,
        -1.0 if maximize else 1.0,
        float(weight_decay),
        1.0 - beta1,
        float(beta2),
        float(eps),
        lr / (1 - beta1**step),
    )


def rmsprop_step(
    param: np.ndarray,
    grad: np.ndarray,
    square_avg: np.ndarray,
    grad_avg: None,
    momentum_buffer: np.ndarray | None,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    maximize: bool,
) -> None:
    """One step of RMSprop, not centered."""
    own, size = param.dtype, param.size
    numbers = -1.0 if maximize else 1.0, float(weight_decay), float(alpha), 1.0 - alpha, float(eps)
    if momentum_buffer is None:
        _rmsprop(own, size, size, param, square_avg, grad, *numbers, float(lr))
    else:
        arrays = param, square_avg, momentum_buffer, grad
        _rmsprop_momentum(own, size, size, *arrays, *numbers, float(momentum), float(lr))


def adagrad_step(
    param: np.ndarray,
    grad: np.ndarray,
    state_sum: np.ndarray,
    lr: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of Adagrad."""
    size, sign = param.size, -1.0 if maximize else 1.0
    numbers = sign, float(weight_decay), float(eps), float(lr)
    _adagrad(param.dtype, size, size, param, state_sum, grad, *numbers)


def asgd_step(
    param: np.ndarray,
    grad: np.ndarray,
    ax: np.ndarray,
    lambd: float,
    eta: float,
    mu: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of averaged SGD."""
    size, sign = param.size, -1.0 if maximize else 1.0
    numbers = sign, float(weight_decay), 1.0 - lambd * eta, float(eta), float(mu)
    _asgd(param.dtype, size, size, param, ax, grad, *numbers)


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


def _accepts(states: int) -> Callable[..., bool]:
    """A parameter, its gradient and so many arrays, of which those that may be None are given."""

    def accepts(param: Any, grad: Any, *rest: Any) -> bool:
        if not is_dense(param, _LEAST):
            return False
        given = [x for x in rest[:states] if x is not None]
        return _independent(param, grad, *given)

    return accepts


def _accepts_rmsprop(param: Any, grad: Any, square: Any, mean: Any, buffer: Any, *_: Any) -> bool:
    if mean is not None or not is_dense(param, _LEAST):
        return False
    given = (square,) if buffer is None else (square, buffer)
    return _independent(param, grad, *given)


KERNELS: dict[str, Callable[..., Any]] = {
    "adagrad_step": adagrad_step,
    "adam_step": adam_step,
    "adam_steps": adam_steps,
    "adamax_step": adamax_step,
    "capturable_adam_steps": capturable_adam_steps,
    "asgd_step": asgd_step,
    "nadam_step": nadam_step,
    "radam_step": radam_step,
    "rmsprop_step": rmsprop_step,
    "sgd_step": sgd_step,
    "sgd_steps": sgd_steps,
}
WHEN: dict[str, Callable[..., bool]] = {
    "adagrad_step": _accepts(1),
    "adam_step": _accepts(3),
    "adamax_step": _accepts(2),
    "asgd_step": _accepts(1),
    "nadam_step": _accepts(2),
    "radam_step": _accepts(2),
    "rmsprop_step": _accepts_rmsprop,
    "sgd_step": _accepts(1),
}
