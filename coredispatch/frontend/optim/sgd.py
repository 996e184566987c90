"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim import on_device
from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import (
    check,
    check_modes,
    number,
    places_of,
    require_no_decay,
    step_of,
)
from coredispatch.frontend.optim.together import Together
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["SGD"]

_sgd_step = TABLE.operator("sgd_step")
_sgd_steps = TABLE.operator("sgd_steps")
_zeros_like = TABLE.operator("zeros_like")


class SGD(Optimizer):
    """Stochastic gradient descent with momentum (plain, dampened or Nesterov's).

    Sutskever, Martens, Dahl and Hinton, 2013. ``foreach`` and ``fused`` make no difference: every
    step is one fused operator. With ``fused``, and without dampening, a :class:`GradScaler` skips
    steps without reading a value. With ``differentiable`` autograd records the steps.
    """

    captures = True

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return on_device.scales_itself(self)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_modes(foreach, differentiable, fused)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        step_op, together = step_of(_sgd_step, group), Together(_sgd_steps, group)
        found = self.__dict__.get("found_inf")
        lr, momentum = number(group["lr"]), group["momentum"]
        dampening, decay = group["dampening"], group["weight_decay"]
        nesterov, maximize = group["nesterov"], group["maximize"]
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            # A sparse parameter has a gradient of its own layout: the step is the usual one.
            plain = grad.keys == together.keys  # asking for a layout takes 0.8 us
            if not plain and grad.is_sparse and not parameter.is_sparse:
                self._sparse(group, parameter, grad)
                continue
            buffer, first = None, False
            if momentum:
                state = self.state[parameter]
                buffer = state.get("momentum_buffer")
                if buffer is None:
                    buffer = state["momentum_buffer"] = _zeros_like(parameter)
                    first = True
            if found is not None:
                on_device.sgd(parameter, grad, buffer, group, found)
                continue
            tensors = parameter, grad, buffer
            numbers = lr, momentum, dampening, decay, nesterov, maximize, first
            if not plain or not together.takes(tensors, numbers):
                step_op(*tensors, *numbers)
        together.run()

    def _sparse(self, group: dict[str, Any], parameter: Tensor, grad: Any) -> None:
        """A step by a sparse gradient: the elements that it has, or had while there is momentum."""
        require_no_decay(group["weight_decay"])
        grad = -grad if group["maximize"] else grad
        momentum = group["momentum"]
        if momentum:
            state = self.state[parameter]
            known = state.get("momentum_buffer")
            damped = grad * (1 - group["dampening"])
            buffer = grad.clone() if known is None else known * momentum + damped
            state["momentum_buffer"] = buffer
            grad = grad + buffer * momentum if group["nesterov"] else buffer
        parameter.index_put_(places_of(grad), grad.values() * -number(group["lr"]), accumulate=True)
