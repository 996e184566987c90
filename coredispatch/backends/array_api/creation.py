"""Array-API kernels that create arrays from sizes and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.namespace import Namespace
from coredispatch.registry.model.dtypes import (
    DType,
    default_dtype,
    float64,
    int64,
    scalar_dtype,
    uint64,
)
from coredispatch.registry.model.scalars import arange_bounds
from coredispatch.registry.model.sizes import as_sizes

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    xp = Namespace.of(xp)

    def full(size: tuple[int, ...], value: Any, dtype: DType | None, device: Any) -> Any:
        size = as_sizes(size)
        value = value.item() if hasattr(value, "item") else value
        return xp.filled(size, value, dtype or scalar_dtype(value))

    def arange(start: Any, end: Any, step: Any, dtype: DType | None, device: Any) -> Any:
        start, end, step = arange_bounds(start, end, step, dtype)
        exact = all(isinstance(v, int) for v in (start, end, step))
        wanted = dtype or (int64 if exact else default_dtype())
        # Rounding once at the end keeps the number of elements independent of the dtype.
        drawn = int64 if exact else float64
        if exact and max(start, end) >= 1 << 63:
            drawn = uint64 if wanted.is_integral else float64
        count = -((start - end) // step) if exact else 0
        if drawn is int64 and exact and count > 1 and abs(end - start) > 1 << 53:
            # Libraries may count such integers in doubles.
            out = xp.arange(0, count, 1, dtype=xp.native(int64)) * step + start
        else:
            out = xp.arange(start, end, step, dtype=xp.native(drawn))
        return out if drawn is wanted else xp.astype(out, xp.native(wanted))

    return {"full": full, "arange": arange}
