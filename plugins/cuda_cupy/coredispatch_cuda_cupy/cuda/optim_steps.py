"""Steps of Adam, AdamW and SGD: over one parameter, and over many in one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cuda_cupy.cuda.layout import blocks
from coredispatch_cuda_cupy.cuda.loading import Family
from coredispatch_cuda_cupy.cuda.tables import NUMBER_TYPES, THREADS, Tables, are_alike

__all__ = ["kernels"]

#: the types of the numbers of steps: half precision would stop at 2048
_COUNTERS = (NUMBER_TYPES["float32"], NUMBER_TYPES["float64"])


def _adam_numbers(
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> tuple[float, ...]:
    return (
        -1.0 if maximize else 1.0,
        0.0 if decoupled else float(weight_decay),
        1.0 - lr * weight_decay if decoupled else 1.0,
        1.0 - beta1,
        float(beta2),
        1.0 - beta2,
        (1.0 - beta2**step) ** -0.5,
        float(eps),
        lr / (1.0 - beta1**step),
    )


def _counted_numbers(
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> tuple[float, ...]:
    return (
        -1.0 if maximize else 1.0,
        0.0 if decoupled else float(weight_decay),
        float(weight_decay) if decoupled else 0.0,
        math.log(beta1) if beta1 else -math.inf,
        1.0 - beta1,
        float(beta2),
        math.log(beta2) if beta2 else -math.inf,
        1.0 - beta2,
        float(eps),
    )


def _sgd_numbers(
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> tuple[float, ...]:
    sign = -1.0 if maximize else 1.0
    numbers = (sign, float(weight_decay), float(momentum), 1.0 - dampening, float(lr))
    return (*numbers, int(first), int(nesterov))


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch, tables = Family(cupy, "optim_steps"), Tables(cupy)

    def one(name: str, arrays: tuple[Any, ...], numbers: tuple[float, ...]) -> Any:
        param = arrays[0]
        if not are_alike(*arrays):
            return NotImplemented
        if param.size:
            given = tuple(0 if x is None else x for x in arrays)
            arguments = (*given, param.size, *numbers)
            launch(name, param.dtype, blocks(param.size), THREADS, arguments)
        return None

    def many(name: str, lists: tuple[Any, ...], numbers: tuple[float, ...]) -> Any:
        table = tables.of(*lists) if lists[0] and lists[1] else None
        if table is None:
            return NotImplemented
        if table.grid:
            arguments = (*table.arguments, *numbers)
            launch(name, lists[0][0].dtype, table.grid, THREADS, arguments)
        return None

    def adam_step(
        param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, max_exp_avg_sq: Any, *numbers: Any
    ) -> Any:
        arrays = (param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq)
        return one("adam", arrays, _adam_numbers(*numbers))

    def adam_steps(
        params: Any,
        grads: Any,
        exp_avgs: Any,
        exp_avg_sqs: Any,
        max_exp_avg_sqs: Any,
        *numbers: Any,
    ) -> Any:
        lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
        return many("adam_many", lists, _adam_numbers(*numbers))

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
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
            return NotImplemented
        counted = {x.dtype for x in state_steps}
        if len(state_steps) != len(params) or len(counted) != 1 or any(x.ndim for x in state_steps):
            return NotImplemented
        step_type = NUMBER_TYPES.get(counted.pop().name)
        if step_type not in _COUNTERS:
            return NotImplemented
        if found_inf is not None and (found_inf.dtype != np.float32 or found_inf.size != 1):
            return NotImplemented
        rate: tuple[Any, ...] = (0, 0, lr)
        if hasattr(lr, "dtype"):
            rate = (lr, NUMBER_TYPES.get(lr.dtype.name), 0.0)
            if rate[1] is None or lr.size != 1:
                return NotImplemented
        elif not isinstance(lr, (int, float)):
            return NotImplemented
        lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
        full = params and grads and exp_avgs and exp_avg_sqs
        table = tables.of(*lists, numbers=state_steps) if full else None
        if table is None:
            return NotImplemented
        given = step_type, 0 if found_inf is None else found_inf, *rate[:2], float(rate[2])
        arguments = (*table.arguments, *given, *_counted_numbers(beta1, beta2, *rest))
        launch("adam_counted", params[0].dtype, max(table.grid, 1), THREADS, arguments)
        return None

    def sgd_step(param: Any, grad: Any, momentum_buffer: Any, *numbers: Any) -> Any:
        return one("sgd", (param, grad, momentum_buffer), _sgd_numbers(*numbers))

    def sgd_steps(params: Any, grads: Any, momentum_buffers: Any, *numbers: Any) -> Any:
        return many("sgd_many", (params, grads, momentum_buffers), _sgd_numbers(*numbers))

    return {
        "adam_step": adam_step,
        "adam_steps": adam_steps,
        "capturable_adam_steps": capturable_adam_steps,
        "sgd_step": sgd_step,
        "sgd_steps": sgd_steps,
    }
