"""What the optimizers share: checks of their options, and the form of one step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.plugin import Symbol
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "check",
    "check_betas",
    "check_modes",
    "cosine",
    "next_step",
    "number",
    "places_of",
    "require_no_decay",
    "step_of",
]

_view_as_real = TABLE.operator("view_as_real")


def check(**bounds: Any) -> None:
    """Raise ``ValueError`` for the first option that is negative (or NaN)."""
    for name, value in bounds.items():
        if name == "lr" and isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= value:
            label = {"lr": "learning rate", "eps": "epsilon value"}.get(name, f"{name} value")
            raise ValueError(f"Invalid {label}: {value}")


def check_betas(betas: Any) -> None:
    """Raise ``ValueError`` for a coefficient outside ``[0, 1)``, ``IndexError`` for too few."""
    if len(betas) < 2:
        raise IndexError(f"betas={betas!r} has {len(betas)} of 2 coefficients")
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")


def check_modes(foreach: bool | None, differentiable: bool, fused: bool | None = None) -> None:
    """Raise ``RuntimeError`` for modes that exclude each other."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def number(value: Any) -> float:
    """A learning rate or a loss as a number; it may be a tensor of one element."""
    return value if isinstance(value, float) else float(value)


def cosine(angle: Any) -> float:
    """``math.cos``, also of a number that a captured program computes with."""
    symbol: Any = angle if isinstance(angle, Symbol) else None
    found: float = math.cos(angle) if symbol is None else symbol.apply(math.cos)
    return found


def next_step(step: Any) -> int:
    """The number of the step after ``step``, which a state dict may hold as a tensor."""
    return step + 1 if isinstance(step, int) else int(step) + 1


def step_of(operator: Any, group: dict[str, Any]) -> Callable[..., Any]:
    """What takes one step: ``operator``, which a backend may fuse, or its definition.

    The definition is made of operators that autograd records, which is what ``differentiable``
    asks for. The tensors among the arguments come first; complex ones are seen as pairs of numbers.
    """
    if group.get("differentiable"):
        operator = operator.decomposition
    if not any(parameter.is_complex() for parameter in group["params"]):
        plain: Callable[..., Any] = operator
        return plain

    def step(*args: Any) -> None:
        is_pair = args[0].is_complex()
        operator(*(_view_as_real(a) if is_pair and isinstance(a, Tensor) else a for a in args))

    return step


def places_of(grad: Any) -> tuple[Any, ...]:
    """Where the elements of a sparse gradient are: an index of its parameter."""
    return tuple(grad.coalesce().indices().unbind(0))


def require_no_decay(weight_decay: float) -> None:
    """Weight decay would move the elements that a sparse gradient leaves alone."""
    if weight_decay:
        raise RuntimeError("weight_decay option is not compatible with sparse gradients")
