"""The errors of ``cd.onnx``."""

from __future__ import annotations

from typing import Any

__all__ = ["OnnxExporterError", "UnsupportedOperatorError"]


class OnnxExporterError(RuntimeError):
    """An export that failed."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator, or a use of one, that has no translation.

    Attributes:
        operator: the operator, where one is at fault.
    """

    def __init__(self, message: str, operator: Any = None) -> None:
        super().__init__(message)
        self.operator = operator
