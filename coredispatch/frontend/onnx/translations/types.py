"""Element types that ONNX does not compute in: the nodes compute in another one.

What is computed in int32 and cut off is what the smaller type gives, and a bool is whether the
number is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coredispatch.frontend.onnx.builder import Builder, Tensor, onnx_dtype
from coredispatch.graph.node import map_aggregate
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import DType, dtypes

__all__ = ["in_known_types"]

_SMALL = (dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int16)
_HALVES = (dtypes.float16, dtypes.bfloat16)
#: whole numbers are what these give for themselves
_ROUNDING = frozenset({"floor", "ceil", "round"})
_IN_INT32 = frozenset(
    "matmul mm bmm mv dot linear addmm add sub mul pow abs neg sign relu amax amin maximum minimum "
    "clamp hardtanh relu6 where masked_fill constant_pad_nd tril triu prod scatter_add index_put "
    "index_add".split()
)
#: a sum at one place of several values
_ADDING = frozenset({"scatter_add", "index_put", "index_add"})
_POOLS = frozenset({"max_pool1d", "max_pool2d", "max_pool3d"})


def in_known_types(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The translation of the operator ``name`` for all element types."""

    def translate(b: Builder, *args: Any) -> Any:
        result = b.result
        if not isinstance(result, ValueInfo):
            return function(b, *args)
        if name in _ROUNDING and not result.dtype.is_floating_point:
            return b.op("Identity", b.cast(args[0], result.dtype))
        wide = _wider(name, result.dtype)
        if wide is None:
            return function(b, *args)

        def widened(value: Any) -> Any:
            if not isinstance(value, Tensor) or value.dtype is not result.dtype:
                return value
            return Tensor(b.cast(value, wide), replace(value.info, dtype=wide))

        # Indices keep their type: masks among them are bool.
        places = {"index_put": 1, "where": 0, "masked_fill": 1}
        given = [
            value if places.get(name) == i else map_aggregate(value, widened)
            for i, value in enumerate(args)
        ]
        b.result = replace(result, dtype=wide)
        return b.op("Cast", function(b, *given), to=onnx_dtype(result.dtype))

    return translate


def _wider(name: str, dtype: DType) -> DType | None:
    """What to compute in, None for ``dtype`` itself."""
    if name in _IN_INT32 and dtype in _SMALL:
        return dtypes.int32
    if name in _ADDING and dtype in _HALVES:
        return dtypes.float32
    if name in _POOLS and not dtype.is_floating_point:
        return dtypes.float64
    return None
