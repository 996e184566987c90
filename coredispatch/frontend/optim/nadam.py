"""Adam with Nesterov momentum."""

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

__all__ = ["NAdam"]

_nadam_step = TABLE.operator("nadam_step")
_zeros_like = TABLE.operator("zeros_like")


class NAdam(Optimizer):
    """Adam with Nesterov's momentum. Dozat, 2016.

    ``decoupled_weight_decay`` applies the decay to the parameters, as AdamW does.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr=lr, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay)
        check_betas(betas)
        check_modes(foreach, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        step_op = step_of(_nadam_step, group)
        beta1, beta2 = group["betas"]
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"], state["mu_product"] = 0, 1.0
                state["exp_avg"] = _zeros_like(parameter)
                state["exp_avg_sq"] = _zeros_like(parameter)
            step = state["step"] = next_step(state["step"])
            decay = group["momentum_decay"]
            mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** (t * decay)) for t in (step, step + 1))
            product = state["mu_product"] = number(state["mu_product"]) * mu
            step_op(
                parameter,
                grad,
                state["exp_avg"],
                state["exp_avg_sq"],
                step,
                number(group["lr"]),
                beta1,
                beta2,
                group["eps"],
                group["weight_decay"],
                (1 - mu) / (1 - product),
                mu_next / (1 - product * mu_next),
                group["decoupled_weight_decay"],
                group["maximize"],
            )
