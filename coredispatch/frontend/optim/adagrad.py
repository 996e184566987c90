"""Adagrad."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import (
    check,
    check_modes,
    next_step,
    number,
    places_of,
    require_no_decay,
    step_of,
)
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Adagrad"]

_adagrad_step = TABLE.operator("adagrad_step")
_full_like = TABLE.operator("full_like")


class Adagrad(Optimizer):
    """Division by the root of the sum of squared gradients. Duchi, Hazan and Singer, 2011."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=eps)
        check(initial_accumulator_value=initial_accumulator_value)
        check_modes(foreach, differentiable, fused)
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

        for group in self.param_groups:
            for parameter in group["params"]:
                self._begun(parameter, group)

    def _begun(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter, which begins with the value that the group asks for."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = 0
            state["sum"] = _full_like(parameter, group["initial_accumulator_value"])
        return state

    def share_memory(self) -> None:
        """Let the sums lie in memory that processes share."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self._begun(parameter, group)["sum"].share_memory_()

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        step_op = step_of(_adagrad_step, group)
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self._begun(parameter, group)
            step = state["step"] = next_step(state["step"])
            lr = number(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
            if grad.is_sparse:
                require_no_decay(group["weight_decay"])
                places, values = places_of(grad), grad.values()
                values = -values if group["maximize"] else values
                total = state["sum"][places] + values * values
                state["sum"][places] = total
                change = values / (total.sqrt() + group["eps"]) * -lr
                parameter.index_put_(places, change, accumulate=True)
                continue
            options = group["eps"], group["weight_decay"], group["maximize"]
            step_op(parameter, grad, state["sum"], lr, *options)
