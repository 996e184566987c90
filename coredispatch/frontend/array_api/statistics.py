"""Reductions of the array API standard."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.array_api.promotion import call, dtype_of_all
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.dtypes import DType, int64, uint64

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std",
    "sum", "var",
]  # fmt: skip


def _summed_dtype(x: Tensor, dtype: Any) -> DType:
    """Sums of integers are as wide as the widest integers of their kind."""
    if dtype is not None:
        return DType.of(dtype)
    if x.dtype.kind == "u":
        return uint64
    return int64 if x.dtype.category < 2 else x.dtype


def _over(x: Tensor, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum; of integers an int64 or uint64."""
    dtype = _summed_dtype(x, dtype)
    if axis == ():
        return x.to(dtype, copy=True)
    return call("sum", x.to(dtype), _over(x, axis) or None, keepdims, dtype=dtype)  # type: ignore[no-any-return]


def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product; of integers an int64 or uint64."""
    out = x.to(_summed_dtype(x, dtype), copy=True)
    for a in sorted((a % x.ndim for a in _over(x, axis)), reverse=True):
        out = call("prod", out, a, True, dtype=out.dtype)
    return out if keepdims else _without(out, x, axis)


def _without(out: Tensor, x: Tensor, axis: Any) -> Tensor:
    axes = tuple(a % x.ndim for a in _over(x, axis))
    return out.squeeze(axes) if axes else out


def _extreme(op: str, x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    axes = _over(x, axis)
    return call(op, x, axes, keepdims) if axes else x.clone()


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The greatest element."""
    return _extreme("amax", x, axis, keepdims)


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The least element."""
    return _extreme("amin", x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean."""
    axes = _over(x, axis)
    return call("mean", x, axes, keepdims) if axes else x.clone()


def var(
    x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance: squares over ``N - correction``."""
    axes = _over(x, axis)
    if not axes:  # of single elements: 0, or NaN of what is not finite
        left = 1 - correction
        return (x - x) / (left if left > 0 else 0.0)
    return call("var", x, axes, correction=correction, keepdim=keepdims)  # type: ignore[no-any-return]


def std(
    x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation."""
    return call("sqrt", var(x, axis=axis, correction=correction, keepdims=keepdims))  # type: ignore[no-any-return]


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true, bool."""
    x = x.bool()
    axes = _over(x, axis)
    return call("all", x, axes, keepdims) if axes else x.clone()


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true, bool."""
    x = x.bool()
    axes = _over(x, axis)
    return call("any", x, axes, keepdims) if axes else x.clone()


def _cumulative(op: str, first: int, x: Tensor, axis: Any, dtype: Any, initial: bool) -> Tensor:
    axis = 0 if axis is None else axis
    dtype = _summed_dtype(x, dtype)
    out: Tensor = call(op, x.to(dtype), axis, dtype=dtype)
    if not initial:
        return out
    sizes = list(out.shape)
    sizes[axis] = 1
    start = call("full", sizes, first, dtype=dtype, device=x.device)
    return call("cat", [start, out], axis)  # type: ignore[no-any-return]


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The sums of the first elements, with ``include_initial`` that of none."""
    return _cumulative("cumsum", 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The products of the first elements, with ``include_initial`` that of none."""
    return _cumulative("cumprod", 1, x, axis, dtype, include_initial)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours, ``n`` times."""
    parts = [p for p in (prepend, x, append) if p is not None]
    dtype = dtype_of_all(parts)
    joined = call("cat", [p.to(dtype) for p in parts], axis)
    return call("diff", joined, n, axis)  # type: ignore[no-any-return]
