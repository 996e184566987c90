"""Convolutions and pools, whose own batch dimension takes the samples in."""

from __future__ import annotations

from typing import Any

__all__ = ["RULES"]

RULES: dict[str, Any] = {}
