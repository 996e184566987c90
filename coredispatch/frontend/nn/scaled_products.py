"""``nn.functional.scaled_mm`` and ``scaled_grouped_mm``, and how matrices may be scaled."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import bfloat16
from coredispatch.registry.model.errors import ArgumentError

if TYPE_CHECKING:
    from coredispatch.frontend.argument_types import DTypeLike
    from coredispatch.frontend.tensor import Tensor

__all__ = ["ScalingType", "SwizzleType", "scaled_grouped_mm", "scaled_mm"]


class ScalingType(Enum):
    """What one scale belongs to; :func:`scaled_mm` takes the first two, groups the second."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(Enum):
    """In what order scales of blocks lie; :func:`scaled_mm` takes the first."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: ScalingType | list[ScalingType],
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: ScalingType | list[ScalingType],
    swizzle_a: SwizzleType | list[SwizzleType] | None = None,
    swizzle_b: SwizzleType | list[SwizzleType] | None = None,
    bias: Tensor | None = None,
    output_dtype: DTypeLike | None = bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of matrices of 8-bit floats, which stand for numbers times a scale.

    Args:
        mat_a: (M, K), of any 8-bit float.
        mat_b: (K, N), of any 8-bit float.
        scale_a, scale_b: float32: one element each for ``TensorWise``, (M, 1) and (1, N) for
            ``RowWise``; or a list of that one tensor.
        scale_recipe_a, scale_recipe_b: which of the two it is, the same for both.
        swizzle_a, swizzle_b: None or ``NO_SWIZZLE``.
        bias: (N,), added to the product.
        output_dtype: dtype of the result, that of ``mat_a`` for None.
        contraction_dim: the dimensions that are summed over, which are (1, 0).
        use_fast_accum: allows a device to add up with fewer digits.

    Returns (M, N). Raises :class:`ArgumentError` for scales of blocks, and what the operator
    ``_scaled_mm`` raises.

    Example::

        a, b = cd.ones(2, 3).to(cd.float8_e4m3fn), cd.ones(3, 4).to(cd.float8_e4m3fn)
        whole = F.ScalingType.TensorWise
        F.scaled_mm(a, b, cd.tensor(2.0), whole, cd.tensor(0.5), whole)  # (2, 4), each 3, bfloat16
    """
    scales, rows, columns = [], mat_a.shape[0], mat_b.shape[-1]
    given = (
        ("a", scale_a, scale_recipe_a, (rows, 1)),
        ("b", scale_b, scale_recipe_b, (1, columns)),
    )
    for name, scale, recipe, shape in given:
        one, kind = _single(scale, f"scale_{name}"), _single(recipe, f"scale_recipe_{name}")
        if kind not in (ScalingType.TensorWise, ScalingType.RowWise):
            raise ArgumentError(
                f"scaled_mm(): scale_recipe_{name}={kind} is not served",
                fix="use ScalingType.TensorWise or ScalingType.RowWise",
            )
        wanted = () if kind is ScalingType.TensorWise else shape
        if tuple(one.shape) != wanted and not (wanted == () and one.numel() == 1):
            raise ArgumentError(
                f"scaled_mm(): scale_{name} has the shape {tuple(one.shape)}, and {kind.name} asks "
                f"for {wanted or 'one element'}",
                fix=f"give a scale of that shape, or another scale_recipe_{name}",
            )
        scales.append(one)
    if _single(scale_recipe_a, "") is not _single(scale_recipe_b, ""):
        raise ArgumentError(
            "scaled_mm(): one matrix is scaled as a whole, the other by rows",
            fix="use the same recipe for both",
        )
    _check_layout("scaled_mm", swizzle_a, swizzle_b, contraction_dim)
    multiply = TABLE.operator("_scaled_mm")
    made: Tensor = multiply(mat_a, mat_b, *scales, bias, None, output_dtype, use_fast_accum)
    return made


def scaled_grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: ScalingType | list[ScalingType],
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: ScalingType | list[ScalingType],
    swizzle_a: SwizzleType | list[SwizzleType] | None = None,
    swizzle_b: SwizzleType | list[SwizzleType] | None = None,
    bias: Tensor | None = None,
    offs: Tensor | None = None,
    output_dtype: DTypeLike | None = bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """Products of groups of matrices of 8-bit floats, as a mixture of experts has them.

    Args:
        mat_a: (G, M, K); or (M, K), whose rows are in groups, or whose columns where ``mat_b``
            has two dimensions, too.
        mat_b: (G, K, N); or (K, N), whose columns are in groups, or whose rows.
        scale_a: float32, one for each row: (G, M), (M,), or (G * M,) for two dimensions each; or a
            list of that one tensor.
        scale_b: float32, one for each column: (G, N), (N,) or (G * N,); or a list.
        scale_recipe_a, scale_recipe_b: ``RowWise``.
        swizzle_a, swizzle_b: None or ``NO_SWIZZLE``.
        bias: None.
        offs: (G,), int32 or int64: where each group ends, where a matrix has two dimensions.
        output_dtype: bfloat16, float16 or float32.
        contraction_dim: the dimensions that are summed over, the last of ``mat_a`` and the one
            before the last of ``mat_b``.
        use_fast_accum: allows a device to add up with fewer digits.

    Returns (M, N) where one matrix has two dimensions, else (G, M, N). Raises
    :class:`ArgumentError` for other scalings, and what the operator ``_scaled_grouped_mm`` raises.

    Example::

        a, b = cd.ones(5, 3).to(cd.float8_e4m3fn), cd.ones(2, 3, 4).to(cd.float8_e4m3fn)
        ends, rows = cd.tensor([2, 5], dtype=cd.int32), F.ScalingType.RowWise
        F.scaled_grouped_mm(a, b, cd.ones(5), rows, cd.ones(2, 4), rows, offs=ends)  # (5, 4)
    """
    scales = []
    for name, scale, recipe in (("a", scale_a, scale_recipe_a), ("b", scale_b, scale_recipe_b)):
        kind = _single(recipe, f"scale_recipe_{name}")
        if kind is not ScalingType.RowWise:
            raise ArgumentError(
                f"scaled_grouped_mm(): scale_recipe_{name}={kind} is not served",
                fix="use ScalingType.RowWise",
            )
        scales.append(_single(scale, f"scale_{name}"))
    _check_layout("scaled_grouped_mm", swizzle_a, swizzle_b, contraction_dim)
    multiply = TABLE.operator("_scaled_grouped_mm")
    made: Tensor = multiply(
        mat_a, mat_b, *scales, offs, bias, None, output_dtype, bool(use_fast_accum)
    )
    return made


def _check_layout(name: str, swizzle_a: Any, swizzle_b: Any, contraction_dim: Any) -> None:
    """Refuse scales that lie in another order, and sums over other dimensions."""
    for which, swizzle in (("a", swizzle_a), ("b", swizzle_b)):
        found = SwizzleType.NO_SWIZZLE if not swizzle else _single(swizzle, f"swizzle_{which}")
        if found is not SwizzleType.NO_SWIZZLE:
            raise ArgumentError(
                f"{name}(): swizzle_{which}={found} is not served", fix="use NO_SWIZZLE"
            )
    usual = (
        ((), (-1, -2)) if name == "scaled_grouped_mm" else ((), (1, 0), (-1, 0), (1, -2), (-1, -2))
    )
    if tuple(contraction_dim) not in usual:
        raise ArgumentError(
            f"{name}(): contraction_dim={tuple(contraction_dim)} is not served",
            fix=f"transpose the matrices so that it is {usual[1]}",
        )


def _single(value: Any, name: str) -> Any:
    if not isinstance(value, (list, tuple)):
        return value
    if len(value) != 1:
        raise ArgumentError(f"{name} has {len(value)} members", fix="scales of one level have one")
    return value[0]
