"""Reductions, scans and sorts over an array-API namespace.

Half precision accumulates in float32, and single precision in double where the namespace has it
(:meth:`.Namespace.accumulator`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.namespace import Namespace, is_half
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import DimError
from coredispatch.registry.model.sizes import normalize_dims

__all__ = ["kernels"]


def axis_of(x: Any, dim: Any) -> Any:
    """The ``axis`` argument for the dims of an op: None for all of them.

    Raises :class:`DimError` for a dim that ``x`` does not have or that is named twice.
    """
    if dim is None or dim == ():
        return None
    normalize_dims(dim if isinstance(dim, tuple) else (dim,), x.ndim)
    return dim if x.ndim else None


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    xp = Namespace.of(xp)

    def number(x: Any) -> Any:
        """``x`` as what the standard orders and adds: bool is no number there."""
        return xp.astype(x, xp.uint8) if not xp.strided and x.dtype == xp.bool else x

    def prepared(x: Any, dtype: DType | None) -> tuple[Any, Any, Any]:
        """``x``, the dtype to accumulate in, and the one of the result."""
        x = number(x)
        if dtype is not None:
            narrow = xp.native(dtype)
        else:
            narrow = xp.int64 if not is_floating(x) else x.dtype
        wide = xp.accumulator(narrow)
        if dtype is not None and wide != narrow and not is_half(narrow):
            # What float32 does not hold is infinite before it is added up, not only after.
            x = xp.astype(x, narrow, copy=False)
        return x, wide, narrow

    def is_floating(x: Any) -> bool:
        name = str(x.dtype).rpartition(".")[2]
        return "float" in name or "complex" in name

    def accumulating(function: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(x: Any, dim: Any, keepdim: bool, dtype: DType | None) -> Any:
            x, wide, narrow = prepared(x, dtype)
            out = function(x, axis=axis_of(x, dim), keepdims=keepdim, dtype=wide)
            return out if wide == narrow else xp.astype(out, narrow)

        return kernel

    def scanning(function: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(x: Any, dim: int, dtype: DType | None) -> Any:
            x, wide, narrow = prepared(x, dtype)
            normalize_dims((dim,), x.ndim)
            if not x.ndim:
                return xp.astype(x, narrow)
            out = function(x, axis=dim, dtype=wide)
            return out if wide == narrow else xp.astype(out, narrow)

        return kernel

    def reducing(function: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(x: Any, dim: Any, keepdim: bool) -> Any:
            return function(x, axis=axis_of(x, dim), keepdims=keepdim)

        return kernel

    def of_nothing(x: Any, dim: Any, keepdim: bool) -> Any:
        """The empty result over dimensions that are not empty, which some libraries refuse."""
        dims = normalize_dims(dim, x.ndim)
        if any(x.shape[d] == 0 for d in dims):
            raise DimError(f"no element is the largest over the dims {dims} of {tuple(x.shape)}")
        lengths = [(d, 1 if d in dims else n) for d, n in enumerate(x.shape)]
        return xp.zeros(tuple(n for d, n in lengths if keepdim or d not in dims), dtype=x.dtype)

    def extreme(function: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(x: Any, dim: Any, keepdim: bool) -> Any:
            if 0 in x.shape and not xp.strided:
                return of_nothing(x, dim, keepdim)
            out = function(number(x), axis=axis_of(x, dim), keepdims=keepdim)
            return out if xp.strided else xp.astype(out, x.dtype, copy=False)

        return kernel

    def indexing(function: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(x: Any, dim: int | None, keepdim: bool) -> Any:
            found = function(number(x), axis=axis_of(x, dim), keepdims=keepdim)
            return xp.astype(found, xp.int64)

        return kernel

    def sort(x: Any, dim: int, descending: bool, stable: bool) -> Any:
        normalize_dims((dim,), x.ndim)
        if not x.ndim:
            return xp.asarray(x, copy=True), xp.zeros((), dtype=xp.int64)
        keys = xp.astype(x, xp.float32) if is_half(x.dtype) else number(x)
        if descending:
            # Reversed twice, so that equal elements keep their order and NaN comes first.
            order = xp.flip(xp.argsort(xp.flip(keys, axis=dim), axis=dim, stable=True), axis=dim)
            order = x.shape[dim] - 1 - order
        else:
            order = xp.argsort(keys, axis=dim, stable=True)
        return xp.take_along_axis(x, order, axis=dim), xp.astype(order, xp.int64)

    found = {
        "sum": accumulating(xp.sum),
        "prod": accumulating(xp.prod),
        "amax": extreme(xp.max),
        "amin": extreme(xp.min),
        "any": reducing(xp.any),
        "all": reducing(xp.all),
        "argmax": indexing(xp.argmax),
        "argmin": indexing(xp.argmin),
        "cumsum": scanning(xp.cumulative_sum if xp.has("cumulative_sum") else xp.cumsum),
        "sort": sort,
    }
    for name in ("cumulative_prod", "cumprod"):
        if "cumprod" not in found and xp.has(name):
            found["cumprod"] = scanning(getattr(xp, name))
    return found
