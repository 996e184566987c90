"""Autograd as a plugin: the layer ``autograd`` with one generic kernel for every op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.autograd import closures as _closures  # noqa: F401  (installs itself)
from coredispatch.frontend.autograd import inplace as _inplace  # noqa: F401  (installs itself)
from coredispatch.frontend.autograd import names as _names  # noqa: F401  (installs itself)
from coredispatch.frontend.autograd import (
    saved_tensors as _saved_tensors,  # noqa: F401  (installs itself)
)
from coredispatch.frontend.autograd.recording import RecordEntry
from coredispatch.registry.around.hookspecs import hookimpl
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.model.backend import Layer
from coredispatch.registry.model.errors import MissingDerivative
from coredispatch.registry.model.value import Value

__all__ = ["coredispatch_register"]


def _applies(op: Operator) -> bool:
    """Transparent for primitives that neither have a derivative nor write to anything.

    A composite without derivative is not transparent: its decomposition must run with recording
    masked.
    """
    known = op.differentiable or op.refuses_gradient
    return known or bool(op.mutates) or op.decomposition is not None


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """A value, or a list of them, with its tensors changed."""
    if isinstance(value, (list, tuple)):
        made = [_each(change, item) for item in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return change(value) if isinstance(value, Value) else value


def _recorded(tensor: Any) -> Any:
    floating = tensor.is_floating_point() or tensor.is_complex()
    return tensor.detach().requires_grad_(True).clone() if floating else tensor


def _through(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The call with copies that are recorded; no leaves, so that they may be written to."""
    result = function(*(_each(_recorded, value) for value in args))
    return _each(lambda tensor: tensor.detach(), result)


def _unless_refused(op: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    result = function(*args)
    if op.refuses_gradient and any(value is not _each(_recorded, value) for value in args):
        raise MissingDerivative(f"{op.name} has no derivative")
    return result


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``autograd``."""
    recorded = Layer(
        "autograd",
        generic=RecordEntry,
        applies=_applies,
        through=_through,
        keeps=("bits",),
        meaning=_unless_refused,
    )
    registrar.layer(recorded)
