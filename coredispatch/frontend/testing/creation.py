"""``make_tensor``: tensors with random elements for tests."""

from __future__ import annotations

import math
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.limits import finfo, iinfo
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import DType

__all__ = ["make_tensor"]


def make_tensor(
    *shape: Any,
    dtype: DType,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of ``shape`` with elements uniform in ``[low, high)``.

    The bounds default to -9 and 9 (10 for integers, 0 and 2 for bool), and are clamped to the range
    of ``dtype``. ``exclude_zero`` puts the smallest positive normal number (or 1) in the place of
    zeros, ``noncontiguous`` makes every other element of a longer tensor.

    Raises ValueError for bounds that are NaN, not ascending or outside of the dtype, for
    ``requires_grad`` of integers, and for ``noncontiguous`` with ``memory_format``.
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else tuple(shape)
    inexact = dtype.is_floating_point or dtype.is_complex
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"{noncontiguous=} and {memory_format=}"
        )
    if requires_grad and not inexact:
        raise ValueError(
            "`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"{dtype=}"
        )
    spread = noncontiguous and math.prod(sizes) > 1
    if spread:
        sizes = (*sizes[:-1], 2 * sizes[-1])
    lowest, highest = _bounds(dtype, low, high)
    if dtype.is_complex:
        pairs = TABLE.operator("empty")((*sizes, 2), dtype=dtype.to_real(), device=device)
        result = TABLE.operator("view_as_complex")(_uniform(pairs, lowest, highest))
    elif inexact:
        fresh = TABLE.operator("empty")(sizes, dtype=dtype, device=device)
        result = _uniform(fresh, lowest, highest)
    else:
        low_, high_ = math.ceil(lowest), math.ceil(highest)
        result = TABLE.operator("randint")(low_, high_, sizes, dtype=dtype, device=device)
    if spread:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = finfo(dtype).tiny if inexact else 1
    if inexact:
        result.requires_grad = requires_grad
    made: Tensor = result
    return made


def _uniform(tensor: Any, low: float, high: float) -> Any:
    """Fill in place; a range wider than the dtype's is drawn at half the scale."""
    if high - low >= finfo(tensor.dtype).max:
        return tensor.uniform_(low / 2, high / 2).mul_(2)
    return tensor.uniform_(low, high)


def _bounds(dtype: DType, low: float | None, high: float | None) -> tuple[float, float]:
    inexact = dtype.is_floating_point or dtype.is_complex
    least: float
    most: float
    if inexact:
        info = finfo(dtype)
        least, most, default_low, default_high = info.min, info.max, -9, 9
    elif dtype.name == "bool":
        least, most, default_low, default_high = 0, 2, 0, 2
    else:
        limits = iinfo(dtype)
        least, most, default_low, default_high = limits.min, limits.max, -9, 10
        most += dtype.name not in ("int64", "uint64")
    low = default_low if low is None else low
    high = default_high if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and inexact:
        warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is "
            "deprecated since 2.1 and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < least or low >= most:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} "
            f"only supports [{least}, {most})"
        )
    return min(max(low, least), most), min(max(high, least), most)
