"""How a quantized tensor is printed: PyTorch's form, the values it stands for."""

from __future__ import annotations

import numpy as np

from coredispatch.plugin import from_raw
from coredispatch_quant.array import QuantizedArray
from coredispatch_quant.kernels import dequantize

__all__ = ["describe"]


def describe(raw: QuantizedArray) -> str:
    """The text between ``tensor(`` and the layout's name and dtype."""
    if raw.data.size:
        values = repr(from_raw(dequantize(raw), backend="cpu")).removeprefix("tensor(")[:-1]
    else:
        values = "[]"
    details = [f"size={tuple(raw.shape)}"]
    if raw.per_channel:
        details += [
            "quantization_scheme=per_channel_affine",
            f"scale={brief(raw.scale)}",
            f"zero_point={brief(raw.zero_point)}",
            f"axis={raw.axis}",
        ]
    else:
        details += [
            "quantization_scheme=per_tensor_affine",
            f"scale={raw.scale:.6g}",
            f"zero_point={raw.zero_point}",
        ]
    return f"{values},\n       {', '.join(details)}"


def brief(parameter: np.ndarray) -> str:
    """The numbers of a per-channel parameter, shortened in the middle."""
    return np.array2string(parameter, separator=", ", precision=6, threshold=8, edgeitems=3)
