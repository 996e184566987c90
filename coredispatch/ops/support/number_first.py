"""Calls that PyTorch deprecates, with a number before the tensors: ``x.add_(-rate, gradient)``.

Programs of 2017 to 2019 are full of them. Each is an overload that warns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coredispatch._warnings import warn
from coredispatch.ops.support.annotations import Scalar, Tensor

if TYPE_CHECKING:
    from coredispatch.registry import Operator

__all__ = ["accept_alpha_first", "accept_factors_first", "accept_value_first"]


def _warn(name: str, old: str, new: str) -> None:
    warn(
        f"This overload of {name} is deprecated:\n\t{name}({old})\n"
        f"Consider using one of the following signatures instead:\n\t{name}({new})",
    )


def accept_alpha_first(op: Operator) -> None:
    """``op(self, alpha, other)``, which is ``op(self, other, alpha=alpha)``."""

    @op.overload
    def _(self: Tensor, alpha: Scalar, other: Tensor) -> Tensor:
        _warn(op.name, "Number alpha, Tensor other", "Tensor other, *, Number alpha = 1")
        return op(self, other, alpha=alpha)


def accept_value_first(op: Operator) -> None:
    """``op(self, value, a, b)``, which is ``op(self, a, b, value=value)``."""

    @op.overload
    def _(self: Tensor, value: Scalar, tensor1: Tensor, tensor2: Tensor) -> Tensor:
        operands = "Tensor tensor1, Tensor tensor2"
        _warn(op.name, f"Number value, {operands}", f"{operands}, *, Number value = 1")
        return op(self, tensor1, tensor2, value=value)


def accept_factors_first(op: Operator) -> None:
    """``beta`` and ``alpha`` of ``addmm`` and its relatives by position.

    The method is ``self.op(beta, alpha, a, b)``, the function ``op(beta, self, alpha, a, b)``;
    both may leave out ``alpha``.
    """
    names = [p.name for p in op.schema.params[1:3]]
    operands = ", ".join(f"Tensor {name}" for name in names)

    def warn(factors: str) -> None:
        new = f"{operands}, *, Number beta = 1, Number alpha = 1"
        _warn(op.name, f"{factors}, {operands}", new)

    def attach(function: Callable[..., Any]) -> None:
        op.overload(function)

    @attach
    def _(self: Tensor, beta: Scalar, alpha: Scalar, mat1: Tensor, mat2: Tensor) -> Tensor:
        warn("Number beta, Number alpha")
        return op(self, mat1, mat2, beta=beta, alpha=alpha)

    @attach
    def _(self: Tensor, beta: Scalar, mat1: Tensor, mat2: Tensor) -> Tensor:
        warn("Number beta")
        return op(self, mat1, mat2, beta=beta)

    @attach
    def _(beta: Scalar, self: Tensor, alpha: Scalar, mat1: Tensor, mat2: Tensor) -> Tensor:
        warn("Number beta, Tensor self, Number alpha")
        return op(self, mat1, mat2, beta=beta, alpha=alpha)

    @attach
    def _(beta: Scalar, self: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor:
        warn("Number beta, Tensor self")
        return op(self, mat1, mat2, beta=beta)
