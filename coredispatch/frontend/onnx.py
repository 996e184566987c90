"""``cd.onnx``: programs import it; nothing can be exported yet."""

from __future__ import annotations

from coredispatch.frontend.announced import announced_class, announced_function

__all__ = ["ONNXProgram", "OnnxExporterError", "export", "is_in_onnx_export"]

_FIX = "save the state_dict with format='torch' and export it with PyTorch"

ONNXProgram = announced_class("onnx.ONNXProgram", _FIX)
export = announced_function("onnx.export", _FIX)


class OnnxExporterError(RuntimeError):
    """An export that failed."""


def is_in_onnx_export() -> bool:
    """False: nobody exports."""
    return False
