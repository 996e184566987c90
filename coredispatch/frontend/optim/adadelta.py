"""Adadelta."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import check, check_modes, next_step, number, step_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Adadelta"]

_adadelta_step = TABLE.operator("adadelta_step")
_zeros_like = TABLE.operator("zeros_like")


class Adadelta(Optimizer):
    """Steps in the units of the parameters themselves. Zeiler, 2012."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr=lr, eps=eps, weight_decay=weight_decay)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_modes(foreach, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "rho": rho,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "capturable": capturable,
                "foreach": foreach,
                "differentiable": differentiable,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        step_op = step_of(_adadelta_step, group)
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["square_avg"] = _zeros_like(parameter)
                state["acc_delta"] = _zeros_like(parameter)
            state["step"] = next_step(state["step"])
            step_op(
                parameter,
                grad,
                state["square_avg"],
                state["acc_delta"],
                number(group["lr"]),
                group["rho"],
                group["eps"],
                group["weight_decay"],
                group["maximize"],
            )
