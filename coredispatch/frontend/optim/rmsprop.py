"""RMSprop."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import check, check_modes, next_step, number, step_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["RMSprop"]

_rmsprop_step = TABLE.operator("rmsprop_step")
_zeros_like = TABLE.operator("zeros_like")


class RMSprop(Optimizer):
    """Division by a running root mean square, centered or not, with momentum.

    Tieleman and Hinton, 2012; Graves, 2013.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        check_modes(foreach, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "alpha": alpha,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "centered": centered,
                "maximize": maximize,
                "capturable": capturable,
                "foreach": foreach,
                "differentiable": differentiable,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        step_op = step_of(_rmsprop_step, group)
        lr = number(group["lr"])
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["square_avg"] = _zeros_like(parameter)
                if group["momentum"] > 0:
                    state["momentum_buffer"] = _zeros_like(parameter)
                if group["centered"]:
                    state["grad_avg"] = _zeros_like(parameter)
            state["step"] = next_step(state["step"])
            step_op(
                parameter,
                grad,
                state["square_avg"],
                state.get("grad_avg"),
                state.get("momentum_buffer"),
                lr,
                group["alpha"],
                group["eps"],
                group["weight_decay"],
                group["momentum"],
                group["maximize"],
            )
