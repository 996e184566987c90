"""The optimizers. Each step of a parameter is one operator, which a backend may fuse."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "RMSprop"]

_sgd_step = TABLE.operator("sgd_step")
_adam_step = TABLE.operator("adam_step")
_rmsprop_step = TABLE.operator("rmsprop_step")
_adagrad_step = TABLE.operator("adagrad_step")
_adadelta_step = TABLE.operator("adadelta_step")
_adamax_step = TABLE.operator("adamax_step")
_zeros_like = TABLE.operator("zeros_like")
_full_like = TABLE.operator("full_like")


def _check(**bounds: Any) -> None:
    """Raise ``ValueError`` for the first option that is negative."""
    for name, value in bounds.items():
        if not 0.0 <= value:
            label = {"lr": "learning rate", "eps": "epsilon value"}.get(name, f"{name} value")
            raise ValueError(f"Invalid {label}: {value}")


def _check_betas(betas: Any) -> None:
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")


def _number(value: Any) -> float:
    return value if type(value) is float else float(value)


class SGD(Optimizer):
    """Stochastic gradient descent with momentum (plain, dampened or Nesterov's).

    Sutskever, Martens, Dahl and Hinton, 2013. ``foreach``, ``fused`` and ``differentiable`` are
    accepted and make no difference.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
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
        _check(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        lr, momentum = _number(group["lr"]), group["momentum"]
        dampening, decay = group["dampening"], group["weight_decay"]
        nesterov, maximize = group["nesterov"], group["maximize"]
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            buffer, first = None, False
            if momentum:
                state = self.state[parameter]
                buffer = state.get("momentum_buffer")
                if buffer is None:
                    buffer = state["momentum_buffer"] = _zeros_like(parameter)
                    first = True
            _sgd_step(
                parameter, grad, buffer, lr, momentum, dampening, decay, nesterov, maximize, first
            )


class Adam(Optimizer):
    """Adam, with L2 penalty in the gradient, and AMSGrad as an option.

    Kingma and Ba, 2015; Reddi, Kale and Kumar, 2018. ``foreach``, ``fused``, ``capturable`` and
    ``differentiable`` are accepted and make no difference: every step is one fused operator.
    """

    _decoupled = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
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
        decoupled_weight_decay: bool | None = None,
    ) -> None:
        _check(lr=lr, eps=eps, weight_decay=weight_decay)
        _check_betas(betas)
        decoupled = self._decoupled if decoupled_weight_decay is None else decoupled_weight_decay
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "decoupled_weight_decay": decoupled,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        lr, (beta1, beta2), eps = _number(group["lr"]), group["betas"], group["eps"]
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
            step = state["step"] = int(state["step"]) + 1
            _adam_step(
                parameter,
                grad,
                state["exp_avg"],
                state["exp_avg_sq"],
                state["max_exp_avg_sq"] if amsgrad else None,
                step,
                lr,
                beta1,
                beta2,
                eps,
                decay,
                decoupled,
                maximize,
            )


class AdamW(Adam):
    """Adam with the weight decay applied to the parameters. Loshchilov and Hutter, 2019."""

    _decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)


class RMSprop(Optimizer):
    """Division by a running root mean square, centered or not, with momentum.

    Tieleman and Hinton, 2012; Graves, 2013.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
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
        _check(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
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
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        lr = _number(group["lr"])
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
            state["step"] = int(state["step"]) + 1
            _rmsprop_step(
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


class Adagrad(Optimizer):
    """Division by the root of the sum of squared gradients. Duchi, Hazan and Singer, 2011."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
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
        _check(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=eps)
        _check(initial_accumulator_value=initial_accumulator_value)
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "maximize": maximize,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["sum"] = _full_like(parameter, group["initial_accumulator_value"])
            step = state["step"] = int(state["step"]) + 1
            lr = _number(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
            options = group["eps"], group["weight_decay"], group["maximize"]
            _adagrad_step(parameter, grad, state["sum"], lr, *options)


class Adadelta(Optimizer):
    """Steps in the units of the parameters themselves. Zeiler, 2012."""

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        _check(lr=lr, eps=eps, weight_decay=weight_decay)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        super().__init__(
            params,
            {
                "lr": lr,
                "rho": rho,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["square_avg"] = _zeros_like(parameter)
                state["acc_delta"] = _zeros_like(parameter)
            state["step"] = int(state["step"]) + 1
            _adadelta_step(
                parameter,
                grad,
                state["square_avg"],
                state["acc_delta"],
                _number(group["lr"]),
                group["rho"],
                group["eps"],
                group["weight_decay"],
                group["maximize"],
            )


class Adamax(Optimizer):
    """Adam with the infinity norm. Kingma and Ba, 2015, section 7.1."""

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        _check(lr=lr, eps=eps, weight_decay=weight_decay)
        _check_betas(betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
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
            step = state["step"] = int(state["step"]) + 1
            _adamax_step(
                parameter,
                grad,
                state["exp_avg"],
                state["exp_inf"],
                step,
                _number(group["lr"]),
                beta1,
                beta2,
                group["eps"],
                group["weight_decay"],
                group["maximize"],
            )
