"""Muon: momentum, orthogonalized."""

from __future__ import annotations

import math
from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import number
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Muon"]

_zeros_like, _addmm = TABLE.operator("zeros_like"), TABLE.operator("addmm")


class Muon(Optimizer):
    """Momentum whose matrices are orthogonalized, for the hidden layers' weights.

    Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024. A quintic
    Newton-Schulz iteration in bfloat16 takes the momentum near its polar factor.
    ``adjust_lr_fn`` is ``"original"`` (the default), or ``"match_rms_adamw"`` of Liu et al.,
    "Muon is scalable for LLM training", 2025. Raises ``ValueError`` for parameters that are not
    matrices.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 <= momentum:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": ns_coefficients,
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.ndim != 2:
                raise ValueError(
                    "Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"{parameter.size()}"
                )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        lr, momentum = number(group["lr"]), group["momentum"]
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            if parameter.is_complex():
                raise RuntimeError("Muon does not support complex parameters")
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = _zeros_like(grad)
            buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
            update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
            update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
            parameter.mul_(1 - lr * group["weight_decay"])
            rate = lr * _ratio(tuple(parameter.shape), group["adjust_lr_fn"])
            parameter.add_(update.to(parameter.dtype), alpha=-rate)


def _ratio(shape: tuple[int, ...], adjust: str | None) -> float:
    rows, columns = shape
    if adjust == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))


def _orthogonal(matrix: Any, coefficients: Any, steps: int, eps: float) -> Any:
    """The matrix with its singular values brought near 1, by Newton-Schulz steps in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16()
    if tall:
        x = x.mT
    x = x / x.norm().clamp_min(eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = _addmm(x, _addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
