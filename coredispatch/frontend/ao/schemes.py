"""Quantization schemes and 8-bit types by name."""

from __future__ import annotations

from typing import Any

from coredispatch.ops.support.plugin_operators import plugin_operator
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.spelling import SPELLING

__all__ = [
    "limits",
    "of_plugin",
    "per_channel_affine",
    "per_channel_affine_float_qparams",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "qscheme",
    "quantized_type",
    "scheme_of",
]


class qscheme:
    """How integers stand for numbers: affine or symmetric, per tensor or per channel."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return SPELLING.of(self._name)

    def __reduce__(self) -> str:
        return self._name


per_tensor_affine = qscheme("per_tensor_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_affine = qscheme("per_channel_affine")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")


def scheme_of(tensor: Any) -> qscheme:
    """The scheme of a quantized tensor. Raises a ``RuntimeError`` for another."""
    try:
        of_plugin("q_scale")(tensor)
    except RuntimeError:
        of_plugin("q_per_channel_axis")(tensor)
        return per_channel_affine
    return per_tensor_affine


_LIMITS = {"qint8": (-128, 127), "int8": (-128, 127), "quint8": (0, 255), "uint8": (0, 255)}


def of_plugin(name: str) -> Any:
    """An operator that the quantization plugin brings."""
    return plugin_operator(name, "quantized tensors", "coredispatch-quant")


def quantized_type(dtype: Any) -> DType:
    """``qint8`` and the like from themselves or by name; any other dtype as it is."""
    of_plugin("quantize_per_tensor")  # whose package registers the types
    found: DType = DType.of(dtype)
    return found


def limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest integer of an 8-bit type. Raises ``ValueError`` for another."""
    if dtype.name not in _LIMITS:
        raise ValueError(f"{dtype} is no 8-bit type: use qint8, quint8, int8 or uint8")
    return _LIMITS[dtype.name]
