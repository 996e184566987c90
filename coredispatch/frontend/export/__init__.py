"""``cd.export``: modules as graphs of operators, without Python, for all inputs of stated shapes.

``export`` follows a module without data and gives an :class:`ExportedProgram`: a graph whose every
node is an operator of the table, its tensors, and the sizes that it holds for. ``Dim`` says which
sizes are open. ``save`` and ``load`` write and read it.
"""

from __future__ import annotations

from coredispatch.frontend.announced import announced_class, announced_function
from coredispatch.frontend.export.constraints import ValueRange
from coredispatch.frontend.export.dims import Dim, ShapesCollection, dims
from coredispatch.frontend.export.errors import GuardError, UserError
from coredispatch.frontend.export.program import ExportedProgram, default_decompositions
from coredispatch.frontend.export.running import ExportedModule
from coredispatch.frontend.export.saving import load, save
from coredispatch.frontend.export.signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from coredispatch.frontend.export.tracing import export
from coredispatch.frontend.utils._pytree import register_dataclass

__all__ = [
    "AdditionalInputs",
    "Dim",
    "ExportGraphSignature",
    "ExportedModule",
    "ExportedProgram",
    "GuardError",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "ShapesCollection",
    "UserError",
    "ValueRange",
    "default_decompositions",
    "dims",
    "draft_export",
    "export",
    "load",
    "register_dataclass",
    "save",
    "unflatten",
]

AdditionalInputs = announced_class("export.AdditionalInputs", "use export.Dim.AUTO")
draft_export = announced_function("export.draft_export", "use export.export with Dim.AUTO")
unflatten = announced_function("export.unflatten", "use jit.trace, which keeps submodules")
