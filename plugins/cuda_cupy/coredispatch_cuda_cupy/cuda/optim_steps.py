"""One step of Adam, AdamW or SGD over one parameter, in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch_cuda_cupy.cuda.layout import blocks
from coredispatch_cuda_cupy.cuda.loading import Family, is_float

__all__ = ["kernels"]


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator."""
    launch = Family(cupy, "optim_steps")

    def adam_step(
        param: Any,
        grad: Any,
        exp_avg: Any,
        exp_avg_sq: Any,
        max_exp_avg_sq: Any,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        decoupled: bool,
        maximize: bool,
    ) -> Any:
        state = (exp_avg, exp_avg_sq, max_exp_avg_sq)
        if not _alike(param, grad, *state):
            return NotImplemented
        if param.size:
            numbers = (
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
            arrays = (param, grad, *(0 if x is None else x for x in state))
            launch("adam", param.dtype, blocks(param.size), 256, (*arrays, param.size, *numbers))
        return None

    def sgd_step(
        param: Any,
        grad: Any,
        momentum_buffer: Any,
        lr: float,
        momentum: float,
        dampening: float,
        weight_decay: float,
        nesterov: bool,
        maximize: bool,
        first: bool,
    ) -> Any:
        if not _alike(param, grad, momentum_buffer):
            return NotImplemented
        if param.size:
            sign = -1.0 if maximize else 1.0
            arrays = (param, grad, 0 if momentum_buffer is None else momentum_buffer)
            numbers = (sign, float(weight_decay), float(momentum), 1.0 - dampening)
            rest = (int(first), int(nesterov), float(lr))
            given = (*arrays, param.size, *numbers, *rest)
            launch("sgd", param.dtype, blocks(param.size), 256, given)
        return None

    return {"adam_step": adam_step, "sgd_step": sgd_step}


def _alike(param: Any, *others: Any) -> bool:
    """Whether the arrays that are there are of one shape and dtype, dense, and apart in memory."""
    given = [param, *(x for x in others if x is not None)]
    places = set()
    for x in given:
        if x.shape != param.shape or x.dtype != param.dtype or not x.flags.c_contiguous:
            return False
        places.add(x.data.ptr)
    return is_float(param.dtype) and (len(places) == len(given) or not param.size)
