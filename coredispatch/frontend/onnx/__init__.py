"""``cd.onnx``: modules as models of ONNX, through ``cd.export``.

``export`` has PyTorch's arguments. Each operator of the table is translated by a function of its
family (``translations``); composites without one are decomposed, and a primitive without one is an
error that names it. ``custom_translation_table`` adds to them.
"""

from __future__ import annotations

from coredispatch.frontend.onnx.builder import Builder
from coredispatch.frontend.onnx.errors import OnnxExporterError, UnsupportedOperatorError
from coredispatch.frontend.onnx.exporting import export, is_in_onnx_export
from coredispatch.frontend.onnx.program import ONNXProgram

__all__ = [
    "Builder",
    "ONNXProgram",
    "OnnxExporterError",
    "UnsupportedOperatorError",
    "export",
    "is_in_onnx_export",
]
