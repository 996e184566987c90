"""``cd.package``: programs import it; there are no packages of code and weights."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.announced import announced_class

__all__ = ["PackageExporter", "PackageImporter", "is_from_package"]

_FIX = "ship the code as a Python package and the weights with torch.save"

PackageExporter = announced_class("package.PackageExporter", _FIX)
PackageImporter = announced_class("package.PackageImporter", _FIX)


def is_from_package(obj: Any) -> bool:
    """False: nothing is."""
    return False
