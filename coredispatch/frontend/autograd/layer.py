"""Autograd as a plugin: the layer ``autograd`` with one generic kernel for every op."""

from __future__ import annotations

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

__all__ = ["coredispatch_register"]


def _applies(op: Operator) -> bool:
    """Transparent for primitives that neither have a derivative nor write to anything.

    A composite without derivative is not transparent: its decomposition must run with recording
    masked.
    """
    known = op.differentiable or op.refuses_gradient
    return known or bool(op.mutates) or op.decomposition is not None


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``autograd``."""
    registrar.layer(Layer("autograd", generic=RecordEntry, applies=_applies))
