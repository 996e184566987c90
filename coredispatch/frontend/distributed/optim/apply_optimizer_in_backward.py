"""Optimizers that take their step within the backward pass, as soon as a gradient is complete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["step_in_backward", "take_over"]


def _apply_optimizer_in_backward(
    optimizer_class: Any,
    params: Iterable[Any],
    optimizer_kwargs: dict[str, Any],
    register_hook: bool = True,
) -> None:
    """Give each parameter an optimizer of its own, whose step follows when its gradient is there.

    The gradient is None afterwards: those of all parameters never lie in memory at once. With
    ``register_hook=False`` the steps are left to somebody else.
    """
    for param in params:
        if not hasattr(param, "_in_backward_optimizers"):
            param._in_backward_optimizers = []
            param._optimizer_classes, param._optimizer_kwargs = [], []
            param._steps_in_backward = None
        param._in_backward_optimizers.append(optimizer_class([param], **optimizer_kwargs))
        param._optimizer_classes.append(optimizer_class)
        param._optimizer_kwargs.append(optimizer_kwargs)
        if register_hook and not param._steps_in_backward:  # one hook serves all its optimizers
            handle = param.register_post_accumulate_grad_hook(step_in_backward)
            param._steps_in_backward = handle


def step_in_backward(param: Any) -> None:
    """Take the steps of the optimizers that `param` has, and free its gradient."""
    for optimizer in param._in_backward_optimizers:
        optimizer.step()
    param.grad = None


def take_over(params: Iterable[Any]) -> list[Any]:
    """Those of `params` that step in backward, whose steps are from now on the caller's.

    Who averages gradients over ranks steps when they are averages.
    """
    found = [param for param in params if getattr(param, "_steps_in_backward", None)]
    for param in found:
        param._steps_in_backward.remove()
        param._steps_in_backward = None
    return found


def _get_in_backward_optimizers(module: Any) -> list[Any]:
    """The optimizers of a module's parameters, to save and load their state."""
    parameters = module.parameters()
    return [o for p in parameters for o in getattr(p, "_in_backward_optimizers", [])]
