"""Adam for sparse gradients."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import check_betas, next_step, number, places_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["SparseAdam"]

_zeros_like = TABLE.operator("zeros_like")


class SparseAdam(Optimizer):
    """Adam that moves, of dense parameters, only the elements that a sparse gradient has.

    Moments of other elements do not decay. Raises ``RuntimeError`` for dense gradients and
    ``ValueError`` for sparse or complex parameters.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize}
        super().__init__(params, defaults)
        placed = [
            ([i, j], parameter)
            for i, group in enumerate(self.param_groups)
            for j, parameter in enumerate(group["params"])
        ]
        sparse = [place for place, p in placed if p.layout != "strided"]
        if sparse:
            raise ValueError(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
            )
        pairs = [place for place, p in placed if p.is_complex()]
        if pairs:
            raise ValueError(
                f"Complex params at indices {pairs}: SparseAdam does not support complex parameters"
            )

    def update(self, group: dict[str, Any]) -> None:
        """One step of every parameter that has a gradient."""
        beta1, beta2 = group["betas"]
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            if not grad.is_sparse:
                raise RuntimeError(
                    "SparseAdam does not support dense gradients, please consider Adam instead"
                )
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["exp_avg"] = _zeros_like(parameter)
                state["exp_avg_sq"] = _zeros_like(parameter)
            step = state["step"] = next_step(state["step"])
            grad = grad.coalesce()
            values = grad.values()
            if not values.numel():
                continue
            if group["maximize"]:
                values = -values
            places = places_of(grad)
            first, second = state["exp_avg"], state["exp_avg_sq"]
            mean = first[places].lerp(values, 1 - beta1)
            square = second[places].lerp(values * values, 1 - beta2)
            first[places], second[places] = mean, square
            rate = number(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
            parameter[places] = parameter[places] - mean / (square.sqrt() + group["eps"]) * rate
