"""Clearing the gradient of a parameter between two steps."""

from __future__ import annotations

from typing import Any

__all__ = ["clear_gradient"]


def clear_gradient(parameter: Any, set_to_none: bool) -> None:
    """Drop ``parameter.grad``, or fill it with zeros in place, cut off from its history."""
    gradient = parameter.grad
    if gradient is None:
        return
    if set_to_none:
        parameter.grad = None
        return
    if gradient.grad_fn is not None:
        gradient.detach_()
    else:
        gradient.requires_grad_(False)
    # Not through a view: a backend without strided views refuses to write to what has an alias.
    gradient.zero_()
