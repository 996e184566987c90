"""Adamax."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import (
    check,
    check_betas,
    check_modes,
    next_step,
    number,
    step_of,
)
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Adamax"]

_adamax_step = TABLE.operator("adamax_step")
_zeros_like = TABLE.operator("zeros_like")


class Adamax(Optimizer):
    """Adam with the infinity norm. Kingma and Ba, 2015, section 7.1."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        check_modes(foreach, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        step_op = step_of(_adamax_step, group)
        beta1, beta2 = group["betas"]
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["exp_avg"] = _zeros_like(parameter)
                state["exp_inf"] = _zeros_like(parameter)
            step = state["step"] = next_step(state["step"])
            step_op(
                parameter,
                grad,
                state["exp_avg"],
                state["exp_inf"],
                step,
                number(group["lr"]),
                beta1,
                beta2,
                group["eps"],
                group["weight_decay"],
                group["maximize"],
            )
