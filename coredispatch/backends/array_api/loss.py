"""Losses over an array-API namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.window_slices import widened
from coredispatch.registry.model.errors import ChoiceError

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """``mse_loss`` over ``xp``; the other losses come from the operators' decompositions."""

    def mse_loss(input: Any, target: Any, reduction: str) -> Any:
        difference = widened(xp, input) - widened(xp, target)
        loss = difference * difference
        if reduction == "mean":
            loss = xp.mean(loss)
        elif reduction == "sum":
            loss = xp.total(loss)
        elif reduction != "none":
            raise ChoiceError.among("reduction", reduction, ("none", "mean", "sum"))
        return xp.astype(loss, input.dtype, copy=False)

    return {"mse_loss": mse_loss}
