"""Promotion by the array API standard: 0-dim arrays count like any others, numbers are weak."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import DType, default_dtype, promote_types
from coredispatch.registry.model.errors import DTypeError

__all__ = ["call", "dtype_of_all", "operands", "result_type"]


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """The operator ``name`` of the table."""
    return TABLE.operator(name)(*args, **kwargs)


def _weak(number: Any, dtype: DType | None) -> DType:
    """The dtype of a Python number beside arrays of ``dtype``."""
    if isinstance(number, bool):
        wanted, own = 0, DType.of("bool")
    elif isinstance(number, int):
        wanted, own = 1, DType.of("int64")
    elif isinstance(number, float):
        wanted, own = 2, default_dtype()
    elif isinstance(number, complex):
        wanted, own = 3, default_dtype().to_complex()
    else:
        raise DTypeError(f"expected an array, a number or a dtype, got {type(number).__name__}")
    if dtype is None:
        return own
    if dtype.category >= wanted:
        return dtype
    return dtype.to_complex() if wanted == 3 and dtype.is_floating_point else own


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that the arguments are promoted to; at least one is an array or a dtype."""
    found: DType | None = None
    for x in arrays_and_dtypes:
        if isinstance(x, (Tensor, DType)):
            dtype = x.dtype if isinstance(x, Tensor) else x
            found = dtype if found is None else promote_types(found, dtype)
    for x in arrays_and_dtypes:
        if not isinstance(x, (Tensor, DType)):
            found = _weak(x, found)
    if found is None:
        raise DTypeError("result_type needs at least one argument", fix="result_type(x, y)")
    return found


def dtype_of_all(arrays: Any) -> DType:
    """The common dtype of arrays."""
    return result_type(*arrays)


def operands(*args: Any) -> tuple[Tensor, ...]:
    """All arguments as arrays of their common dtype; numbers become 0-dim arrays."""
    dtype = result_type(*args)
    device = next(x.device for x in args if isinstance(x, Tensor))
    out = []
    for x in args:
        if not isinstance(x, Tensor):
            x = call("full", (), x, dtype=dtype, device=device)
        out.append(x if x.dtype is dtype else x.to(dtype))
    return tuple(out)
