"""``gradient``: derivatives of a sampled function, by finite differences."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.creation import tensor
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import bool_, uint8
from coredispatch.registry.model.errors import ArgumentError, DimError
from coredispatch.registry.model.sizes import normalize_dim

__all__: list[str] = []


def gradient(
    input: Tensor,
    *,
    spacing: Any = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """The derivative of the function that ``input`` samples, along each dimension.

    Args:
        input: the values.
        spacing: how far apart they are: a number for all dimensions, one number for each, or a
            1-dimensional tensor of coordinates for each; 1 where it is not given.
        dim: the dimensions; all of them where it is not given.
        edge_order: 1 or 2, the order of the differences at both ends.

    Inside, the differences are central and of second order, also for unequal steps (Fornberg,
    "Generation of finite difference formulas on arbitrarily spaced grids", 1988).

    Raises:
        RuntimeError: ``edge_order`` is neither, a dimension has fewer than ``edge_order + 1``
            samples or occurs twice, or there are not as many spacings as dimensions.

    >>> cd.gradient(cd.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    """
    if input.dtype in (bool_, uint8):
        raise ArgumentError(
            f"torch.gradient does not support {input.dtype.name} input.", fix="convert it first"
        )
    if edge_order not in (1, 2):
        raise ArgumentError("torch.gradient only supports edge_order=1 and edge_order=2.")
    given = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    dims = [normalize_dim(d, input.ndim) for d in given]
    if len(set(dims)) < len(dims):
        raise DimError(f"dim {list(given)} appears multiple times in the list of dims")
    spacings = _spacings(spacing, len(dims))
    for d in dims:
        if input.shape[d] < edge_order + 1:
            raise ArgumentError(
                "torch.gradient expected each dimension size to be at least edge_order+1, "
                f"but dimension {d} of {tuple(input.shape)} has {input.shape[d]}"
            )
    if not input.dtype.is_floating_point and not input.dtype.is_complex:
        input = input.to(TABLE.operator("div")(input, 1).dtype)
    return tuple(_along(input, d, step, edge_order) for d, step in zip(dims, spacings))


def _spacings(spacing: Any, count: int) -> list[Any]:
    if spacing is None or isinstance(spacing, numbers.Number):
        return [1 if spacing is None else spacing] * count
    if isinstance(spacing, Tensor):
        spacing = [spacing]
    if len(spacing) != count:
        raise ArgumentError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"equal to 'self.dim() = {count}', but got a list of length {len(spacing)}"
        )
    return list(spacing)


def _along(x: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    x = x.movedim(dim, -1)
    n = x.shape[-1]
    if isinstance(spacing, Tensor):
        if spacing.shape != (n,):
            raise ArgumentError(
                f"torch.gradient expected coordinates of length {n} for dimension {dim}, got "
                f"a tensor of shape {tuple(spacing.shape)}"
            )
        steps = spacing.diff()
    else:
        steps = tensor(spacing, dtype=x.dtype, device=x.device).expand(n - 1)
    slopes = x.diff() / steps
    before, after = steps[:-1], steps[1:]
    weight = before / (before + after)
    inside = slopes[..., :-1] * (1 - weight) + slopes[..., 1:] * weight
    first, last = slopes[..., :1], slopes[..., -1:]
    if edge_order == 2:
        bend = slopes.diff() / (before + after)
        first = first - bend[..., :1] * steps[:1]
        last = last + bend[..., -1:] * steps[-1:]
    result: Tensor = TABLE.operator("cat")((first, inside, last), -1).movedim(-1, dim)
    return result
