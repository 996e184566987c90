"""Where names are that PyTorch keeps in one module only: ``{path: {name: "module:attribute"}}``."""

from __future__ import annotations

__all__ = ["PLACES"]

_NN = "coredispatch.frontend.nn"

PLACES: dict[str, dict[str, str]] = {}
