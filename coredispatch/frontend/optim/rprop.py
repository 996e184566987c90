"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import check, check_modes, next_step, number, step_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Rprop"]

_rprop_step = TABLE.operator("rprop_step")
_zeros_like = TABLE.operator("zeros_like")
_full_like = TABLE.operator("full_like")


class Rprop(Optimizer):
    """Steps of each element's own size, by the signs of the gradient. Riedmiller and Braun, 1993.

    A step grows by ``etas[1]`` while the sign stays and shrinks by ``etas[0]`` when it changes,
    within ``step_sizes``. For full batches.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check(lr=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        check_modes(foreach, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "etas": etas,
                "step_sizes": step_sizes,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        step_op = step_of(_rprop_step, group)
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state[parameter]
            if not state:
                lr = number(group["lr"])
                state["step"] = 0
                state["prev"] = _zeros_like(parameter)
                state["step_size"] = _full_like(
                    grad, complex(lr, lr) if parameter.is_complex() else lr
                )
            state["step"] = next_step(state["step"])
            step_op(
                parameter,
                grad,
                state["prev"],
                state["step_size"],
                *group["etas"],
                *group["step_sizes"],
                group["maximize"],
            )
