"""The factor of a derivative rule, conjugated where numbers are complex.

Gradients follow PyTorch: the gradient of a real loss with respect to a complex tensor is its
conjugate Wirtinger derivative, so every factor of a holomorphic op enters its ``vjp`` through
:func:`adjoint`.
"""

from __future__ import annotations

from typing import Any

from coredispatch.ops.support import lazy
from coredispatch.registry import Value
from coredispatch.registry.model.errors import MissingDerivative
from coredispatch.registry.model.value import dtype_of


def adjoint(x: Any) -> Any:
    """The conjugate of a complex tensor or number; anything real as it is."""
    if isinstance(x, Value):
        return lazy.conj(x) if dtype_of(x).is_complex else x
    return x.conjugate() if type(x) is complex else x


def no_gradient(op: str, name: str) -> Any:
    """A formula that raises: the gradient of parameter ``name`` is wanted and there is none."""

    def refuse() -> Any:
        raise MissingDerivative(
            f"{op} has no derivative with respect to {name!r}",
            fix=f"pass {name}.detach()",
        )

    return refuse
