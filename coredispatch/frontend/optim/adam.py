"""Adam."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim import on_device
from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import (
    check,
    check_betas,
    check_modes,
    next_step,
    number,
    step_of,
)
from coredispatch.frontend.optim.together import Together
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Adam"]

_adam_step = TABLE.operator("adam_step")
_adam_steps = TABLE.operator("adam_steps")
_zeros_like = TABLE.operator("zeros_like")


class Adam(Optimizer):
    """Adam, with L2 penalty in the gradient, and AMSGrad as an option.

    Kingma and Ba, 2015; Reddi, Kale and Kumar, 2018. ``foreach`` makes no difference: every step is
    one fused operator. With ``capturable`` the number of steps and ``lr``, if it is a tensor, stay
    on the parameter's device, which a captured CUDA graph needs, and one operator takes the steps
    of all parameters of a device and a dtype. With ``fused`` or ``capturable`` a
    :class:`GradScaler` skips steps without reading a value. With ``differentiable`` autograd
    records the steps.
    """

    captures = True

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return on_device.scales_itself(self)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        check_modes(foreach, differentiable, fused)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        found = self.__dict__.get("found_inf")
        stays = found is not None or group["capturable"]
        step_op, together = step_of(_adam_step, group), Together(_adam_steps, group)
        captured = on_device.AdamSteps(group, found)
        (beta1, beta2), eps = group["betas"], group["eps"]
        lr = group["lr"] if stays else number(group["lr"])
        decay, maximize, amsgrad = group["weight_decay"], group["maximize"], group["amsgrad"]
        decoupled = group["decoupled_weight_decay"]
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["exp_avg"] = _zeros_like(parameter)
                state["exp_avg_sq"] = _zeros_like(parameter)
                if amsgrad:
                    state["max_exp_avg_sq"] = _zeros_like(parameter)
            if stays:
                captured.add(parameter, grad, state)
                continue
            step = state["step"] = next_step(state["step"])
            largest = state["max_exp_avg_sq"] if amsgrad else None
            tensors = parameter, grad, state["exp_avg"], state["exp_avg_sq"], largest
            numbers = step, lr, beta1, beta2, eps, decay, decoupled, maximize
            if not together.takes(tensors, numbers):
                step_op(*tensors, *numbers)
        together.run()
        captured.run()
