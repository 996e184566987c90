"""Optimizer updates of which every number that changes from step to step is a tensor.

Steps are counted where the parameters are, a learning rate and the flag of an overflow may lie
there, too: nothing is read on the host, and a captured graph can be replayed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import float32
from coredispatch.registry.model.errors import ArgumentError, ShapeError

_SIZES = ((5,), (3, 5), (), (0, 2), (257,))


def _samples(make: Any) -> Iterator[Sample]:
    def flag(value: float) -> Any:
        return np.full((), value, make.dtype)

    for amsgrad, found, lr, options in (
        (False, None, 0.01, (0.9, 0.99, 1e-8, 0.0, False, False)),
        (True, None, make.positive(()), (0.8, 0.9, 1e-6, 0.1, True, True)),
        (False, flag(0), 0.01, (0.9, 0.99, 1e-8, 0.1, False, True)),
        (True, flag(1), make.positive(()), (0.9, 0.99, 1e-8, 0.1, True, False)),
        (False, flag(2), 0.01, (0.9, 0.99, 1e-8, 0.0, False, False)),
        (False, None, 0.01, (0.0, 0.9, 1e-8, 0.0, False, False)),
    ):
        for sizes in (_SIZES, _SIZES[:2]):
            params, grads, averages = ([make(size) for size in sizes] for _ in range(3))
            squares, largest = ([make.positive(size) for size in sizes] for _ in range(2))
            steps = [make((), low=0.0, high=9.0) for _ in sizes]
            lists = params, grads, averages, squares, largest if amsgrad else [], steps
            yield Sample(*lists, found, lr, *options)


@composite(
    samples=_samples,
    mutates=("params", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"),
    differentiable=False,
    dtypes="float",
    namespace=(),
)
def capturable_adam_steps(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    found_inf: Tensor | None,
    lr: Tensor | Scalar,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> None:
    """One step of Adam for each of several parameters, in place, with its number as a tensor.

    Formulas and options are those of ``adam_step``; of AMSGrad's list nothing is given without it.
    ``state_steps`` holds for each parameter how many steps there were, floating and without
    dimensions, which is counted up. ``lr`` is a number or a tensor of one. Where ``found_inf``,
    a tensor of one, is not 0, nothing is written: a gradient overflowed. Half precision is computed
    in float32. Raises :class:`ArgumentError` for a beta outside ``[0, 1)``, :class:`ShapeError`
    for an ``lr`` or ``found_inf`` of several numbers.
    """
    for name, beta in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= beta < 1:
            raise ArgumentError(f"{name} is {beta}", fix="pass a number in [0, 1)")
    if getattr(lr, "ndim", 0):
        lr = _one("lr", lr)
    if found_inf is not None and found_inf.ndim:
        found_inf = _one("found_inf", found_inf)
    options: Any = (found_inf, lr, beta1, beta2, eps, weight_decay, decoupled, maximize)
    largest = max_exp_avg_sqs or (None,) * len(params)
    for given in zip(params, grads, exp_avgs, exp_avg_sqs, largest, state_steps):
        _adam(*given, *options)


def _one(name: str, x: Any) -> Any:
    """A tensor of one number, without dimensions."""
    if x.numel() != 1:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}", fix="pass a tensor of one number")
    return x.reshape(())


def _correction(beta: float, step: Any) -> Any:
    """``1 - beta ** step``, without the cancellation that float32 would not survive."""
    return -(step * math.log(beta)).expm1() if beta else 1.0


def _adam(
    param: Any, grad: Any, average: Any, squares: Any, largest: Any, step: Any, found: Any, lr: Any,
    beta1: float, beta2: float, eps: float, decay: float, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    # Counted up in place, as graphs replay it, and by a number that a flag beyond 1 leaves at 0.
    step.add_(1.0 if found is None else (found == 0).to(step.dtype))
    computed = float32 if param.dtype.itemsize == 2 else param.dtype
    count, value, gradient = (x.to(computed) for x in (step, param, grad))
    rate = lr.to(computed) if hasattr(lr, "dtype") else lr
    if maximize:
        gradient = -gradient
    if decay and decoupled:
        value = value * (1 - rate * decay)
    elif decay:
        gradient = gradient + value * decay
    average_now, squares_now = average.to(computed), squares.to(computed)
    average_now = average_now + (gradient - average_now) * (1 - beta1)
    squares_now = squares_now * beta2 + gradient * gradient * (1 - beta2)
    changes = [(average, average_now), (squares, squares_now)]
    second = squares_now
    if largest is not None:
        second = lazy.maximum(largest.to(computed), squares_now)
        changes.append((largest, second))
    spread = (second / _correction(beta2, count)).sqrt() + eps
    changes.append((param, value - average_now / spread * (rate / _correction(beta1, count))))
    for old, new in changes:
        old.copy_(new if found is None else lazy.where(found != 0, old, new))
