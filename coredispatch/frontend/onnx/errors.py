"""The errors of ``cd.onnx``."""

from __future__ import annotations

__all__ = ["OnnxExporterError", "UnsupportedOperatorError"]


class OnnxExporterError(RuntimeError):
    """An export that failed."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator, or a use of one, that has no translation."""
