"""Reductions that look at the elements a mask lets through: ``cd.masked.sum(x, 1, mask=m)``.

``mask`` broadcasts to the input; an element counts where it is true. What is left out has the value
that changes nothing (0 in a sum, ``-inf`` in a maximum), which is also the result over nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.limits import iinfo
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.dtypes import DType

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp",
    "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
    "var",
]  # fmt: skip


def _dims(input: Tensor, dim: Any) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(input.ndim))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _lowest(dtype: DType) -> Any:
    if dtype.is_floating_point:
        return -float("inf")
    return iinfo(dtype).min if dtype.is_integral else False


def _highest(dtype: DType) -> Any:
    if dtype.is_floating_point:
        return float("inf")
    return iinfo(dtype).max if dtype.is_integral else True


def _only(input: Tensor, mask: Tensor | None, otherwise: Any) -> Tensor:
    if mask is None:
        return input
    if mask.dtype is not dtypes.bool_:
        mask = mask.to(dtypes.bool_)
    kept: Tensor = TABLE.operator("where")(mask, input, otherwise)
    return kept


def _converted(input: Tensor, dtype: Any) -> Tensor:
    return input if dtype is None else input.to(dtype)


def _summable(input: Tensor, dtype: Any) -> Tensor:
    if dtype is None and input.dtype.category < 2:
        dtype = dtypes.int64
    return _converted(input, dtype)


def sum(
    input: Tensor, dim: Any = None, *, keepdim: Any = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The sum of the elements that count, 0 where none does."""
    x = _summable(input, dtype)
    return _only(x, mask, 0).sum(_dims(x, dim), keepdim=bool(keepdim))


def prod(
    input: Tensor, dim: Any = None, *, keepdim: Any = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The product of the elements that count, 1 where none does."""
    x = _summable(input, dtype)
    kept = _only(x, mask, 1)
    for d in sorted((d % max(x.ndim, 1) for d in _dims(x, dim)), reverse=True):
        kept = kept.prod(d, keepdim=bool(keepdim))
    return kept


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """The running sum of the elements that count."""
    return _only(_summable(input, dtype), mask, 0).cumsum(dim)


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """The running product of the elements that count."""
    return _only(_summable(input, dtype), mask, 1).cumprod(dim)


def amax(
    input: Tensor, dim: Any = None, *, keepdim: Any = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The largest element that counts; the lowest value of the dtype where none does."""
    x = _converted(input, dtype)
    return _only(x, mask, _lowest(x.dtype)).amax(_dims(x, dim), bool(keepdim))


def amin(
    input: Tensor, dim: Any = None, *, keepdim: Any = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The smallest element that counts; the highest value of the dtype where none does."""
    x = _converted(input, dtype)
    return _only(x, mask, _highest(x.dtype)).amin(_dims(x, dim), bool(keepdim))


def _place(x: Tensor, dim: int | None, keepdim: Any, dtype: Any, name: str) -> Tensor:
    found: Tensor = getattr(x, name)(dim, bool(keepdim) if dim is not None else False)
    return found.to(x.dtype if dtype is None else dtype)


def argmax(
    input: Tensor, dim: Any = None, *, keepdim: Any = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Where the largest element that counts is, as numbers of the dtype of ``input``."""
    x = _converted(input, dtype)
    return _place(_only(x, mask, _lowest(x.dtype)), dim, keepdim, dtype, "argmax")


def argmin(
    input: Tensor, dim: Any = None, *, keepdim: Any = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Where the smallest element that counts is, as numbers of the dtype of ``input``."""
    x = _converted(input, dtype)
    return _place(_only(x, mask, _highest(x.dtype)), dim, keepdim, dtype, "argmin")


def _count(x: Tensor, dims: tuple[int, ...], keepdim: Any, mask: Any) -> Tensor:
    ones = TABLE.operator("ones_like")(x, dtype=dtypes.int64)
    return _only(ones, mask, 0).sum(dims, keepdim=bool(keepdim))


def _need_float(x: Tensor, name: str) -> None:
    if x.dtype.category < 2:
        raise ValueError(
            f"{name}(): Could not infer output dtype. Input dtype must be either a floating point "
            f"or complex dtype. Got: {x.dtype}"
        )


def mean(
    input: Tensor, dim: Any = None, *, keepdim: Any = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The mean of the elements that count, NaN where none does. Raises ValueError for integers."""
    x = _converted(input, dtype)
    _need_float(x, "mean")
    dims = _dims(x, dim)
    if mask is None:
        return x.mean(dims, keepdim=bool(keepdim))
    return sum(x, dims, keepdim=keepdim, mask=mask) / _count(x, dims, keepdim, mask)


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The lower median of the elements that count, NaN where none does.

    Raises ValueError for integers and where an element that counts is NaN.
    """
    x = _converted(input, dtype)
    _need_float(x, "median")
    if mask is None:
        return x.median(dim, keepdim).values
    if bool(_only(x, mask, 0).isnan().any()):
        raise ValueError(
            "masked median expected no NaN among the elements that count\n"
            "  fix: leave them out of the mask"
        )
    return _only(x, mask, float("nan")).nanmedian(dim, keepdim).values


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    *,
    correction: Any = None,
    keepdim: Any = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The variance of the elements that count, divided by their number less ``correction`` (1)."""
    if unbiased is not None and correction is not None:
        raise ValueError("Only one of unbiased and correction may be given")
    less = correction if correction is not None else 1 if unbiased is None else int(unbiased)
    x = _converted(input, dtype)
    if x.dtype.category < 2:
        x = x.to(dtypes.default_dtype())
    dims = _dims(x, dim)
    count = _count(x, dims, True, mask)
    far = x - sum(x, dims, keepdim=True, mask=mask) / count
    squares = (far * far.conj()).real if x.is_complex() else far * far
    total = sum(squares, dims, keepdim=keepdim, mask=mask)
    return total / (count.reshape(total.shape) - less).clamp(min=0)


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    *,
    correction: Any = None,
    keepdim: Any = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The square root of :func:`var`."""
    spread = var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    )
    return spread.sqrt()


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Any = None,
    *,
    keepdim: Any = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The norm of the vector of elements that count."""
    x = _converted(input, dtype)
    fill = float("inf") if ord is not None and ord < 0 else 0
    vector_norm = TABLE.operator("linalg_vector_norm")
    found: Tensor = vector_norm(
        _only(x, mask, fill), 2 if ord is None else ord, _dims(x, dim), bool(keepdim)
    )
    return found


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The elements that count over their norm, which is at least ``eps``; 0 elsewhere."""
    x = _converted(input, dtype)
    length = norm(x, ord, dim, keepdim=True, mask=mask).clamp(min=eps)
    return _only(x, mask, 0) / length


def logsumexp(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The logarithm of the sum of exponentials of the elements that count."""
    x = _floating(input, dtype)
    return _only(x, mask, -float("inf")).logsumexp(_dims(x, dim), keepdim)


def _floating(input: Tensor, dtype: Any) -> Tensor:
    x = _converted(input, dtype)
    return x.to(dtypes.default_dtype()) if x.dtype.category < 2 else x


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: Any = None,
    input_mask: Any = None,
    other_mask: Any = None,
) -> Tensor:
    """``log(exp(input) + exp(other))`` of the elements that count on either side."""
    low = -float("inf")
    left = _only(_floating(input, dtype), input_mask, low)
    right = _only(_floating(other, dtype), other_mask, low)
    return left.logaddexp(right)


def _over(name: str, sign: int, doc: str) -> Callable[..., Tensor]:
    def function(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
        x = _floating(input, dtype)
        kept = _only(x, mask, -sign * float("inf"))
        softened: Tensor = getattr(kept if sign > 0 else -kept, name)(dim)
        return softened

    function.__doc__ = doc
    return function


softmax = _over("softmax", 1, "``softmax`` over the elements that count; 0 elsewhere.")
softmin = _over("softmax", -1, "``softmin`` over the elements that count; 0 elsewhere.")
log_softmax = _over("log_softmax", 1, "``log_softmax`` over the elements that count.")
softmin.__name__ = softmin.__qualname__ = "softmin"
for _function, _name in ((softmax, "softmax"), (log_softmax, "log_softmax")):
    _function.__name__ = _function.__qualname__ = _name
