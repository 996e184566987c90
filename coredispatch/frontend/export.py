"""``cd.export``: programs import it; nothing can be exported yet."""

from __future__ import annotations

from coredispatch.frontend.announced import announced_class, announced_function

__all__ = ["Dim", "ExportedProgram", "export", "load", "save"]

_FIX = "save the module's state_dict with torch.save"

Dim = announced_class("export.Dim", _FIX)
ExportedProgram = announced_class("export.ExportedProgram", _FIX)
export = announced_function("export.export", _FIX)
save = announced_function("export.save", _FIX)
load = announced_function("export.load", _FIX)
