"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import check, check_modes, next_step, number, step_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["ASGD"]

_asgd_step = TABLE.operator("asgd_step")
_zeros_like = TABLE.operator("zeros_like")


class ASGD(Optimizer):
    """Gradient descent whose iterates are averaged, in ``state[p]["ax"]``.

    Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992. The
    averaging begins after ``t0`` steps; ``lambd`` decays the parameters, and the rate falls as
    ``lr / (1 + lambd * lr * t) ** alpha``.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check(lr=lr, weight_decay=weight_decay)
        check_modes(foreach, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        step_op = step_of(_asgd_step, group)
        lr, lambd = number(group["lr"]), group["lambd"]
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"], state["eta"], state["mu"] = 0, lr, 1.0
                state["ax"] = _zeros_like(parameter)
            step = state["step"] = next_step(state["step"])
            eta, mu = number(state["eta"]), number(state["mu"])
            options = lambd, eta, mu, group["weight_decay"], group["maximize"]
            step_op(parameter, grad, state["ax"], *options)
            state["eta"] = lr / (1 + lambd * lr * step) ** group["alpha"]
            state["mu"] = 1 / max(1, step - group["t0"])
