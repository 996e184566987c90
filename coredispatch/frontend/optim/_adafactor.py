"""Adafactor."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.limits import finfo
from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import next_step, number
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["Adafactor"]

_zeros_like = TABLE.operator("zeros_like")


class Adafactor(Optimizer):
    """Adaptive steps with second moments factored into rows and columns.

    Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018. The
    state of a matrix ``(n, m)`` has ``n + m`` numbers. ``lr`` bounds the relative step
    ``1 / sqrt(t)``, the weight decay is decoupled, and ``eps[0]`` None is the dtype's epsilon.
    Raises ``RuntimeError`` for complex parameters.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 >= beta2_decay:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not 0.0 <= eps[0]:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not 0.0 <= eps[1]:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not 1.0 <= d:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(
            params,
            {
                "lr": lr,
                "beta2_decay": beta2_decay,
                "eps": eps,
                "d": d,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
            },
        )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter.is_complex():
                raise RuntimeError("Adafactor does not support complex parameters")
            grad = -parameter.grad if group["maximize"] else parameter.grad
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                if grad.ndim > 1:
                    state["row_var"] = grad.new_zeros((*grad.shape[:-1], 1))
                    state["col_var"] = grad.new_zeros((*grad.shape[:-2], 1, grad.shape[-1]))
                else:
                    state["variance"] = _zeros_like(grad)
            state["step"] = next_step(state["step"])
            self._advance(parameter, grad, state, group)

    def _advance(self, parameter: Any, grad: Any, state: Any, group: dict[str, Any]) -> None:
        lr, (eps1, eps2), step = number(group["lr"]), group["eps"], state["step"]
        eps1 = finfo(parameter.dtype).eps if eps1 is None else eps1
        size = parameter.numel() ** 0.5
        alpha = max(eps2, float(parameter.norm(2)) / size) * min(lr, 1 / step**0.5)
        if group["weight_decay"]:
            parameter.mul_(1 - lr * group["weight_decay"])
        estimate = self._second_moment(grad, state, float(step) ** group["beta2_decay"], eps1)
        update = estimate.clamp_min(eps1 * eps1).rsqrt() * grad
        clipped = max(1.0, float(update.norm(2)) / (update.numel() ** 0.5 * group["d"]))
        parameter.add_(update, alpha=-alpha / clipped)

    def _second_moment(self, grad: Any, state: Any, share: float, eps: float) -> Any:
        """The running second moment of ``grad``; of a matrix, an outer product."""
        if grad.ndim <= 1:
            return state["variance"].lerp_(grad * grad, share)
        square = grad * grad
        rows = state["row_var"].lerp_(square.mean(-1, keepdim=True), share)
        columns = state["col_var"].lerp_(square.mean(-2, keepdim=True), share)
        return rows @ columns / rows.mean(-2, keepdim=True).clamp_min(eps)
