"""``nn.functional.scaled_mm``, and how its matrices may be scaled."""

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

__all__ = ["ScalingType", "SwizzleType", "scaled_mm"]


class ScalingType(Enum):
    """What one scale belongs to; :func:`scaled_mm` takes the first two."""

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
    for name, swizzle in (("a", swizzle_a), ("b", swizzle_b)):
        found = SwizzleType.NO_SWIZZLE if not swizzle else _single(swizzle, f"swizzle_{name}")
        if found is not SwizzleType.NO_SWIZZLE:
            raise ArgumentError(
                f"scaled_mm(): swizzle_{name}={found} is not served", fix="use NO_SWIZZLE"
            )
    if tuple(contraction_dim) not in ((), (1, 0), (-1, 0), (1, -2), (-1, -2)):
        raise ArgumentError(
            f"scaled_mm(): contraction_dim={tuple(contraction_dim)} is not served",
            fix="transpose the matrices so that it is (1, 0)",
        )
    multiply = TABLE.operator("_scaled_mm")
    made: Tensor = multiply(mat_a, mat_b, *scales, bias, None, output_dtype, use_fast_accum)
    return made


def _single(value: Any, name: str) -> Any:
    if not isinstance(value, (list, tuple)):
        return value
    if len(value) != 1:
        raise ArgumentError(
            f"scaled_mm(): {name} has {len(value)} members", fix="scales of one level have one"
        )
    return value[0]
