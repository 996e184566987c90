"""Products of matrices of 8-bit floats, whose elements are numbers times a scale.

Micikevicius et al., "FP8 Formats for Deep Learning" (2022): a matrix is stored as ``x / scale``, so
that it fills the range of the type, with one scale or one for each row of the first matrix and each
column of the second.
"""

from __future__ import annotations

from math import prod
from typing import Any

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import DType, Tensor
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import STORAGE_DTYPES, float32
from coredispatch.registry.model.errors import DTypeError, ShapeError

__all__ = ["_scaled_mm"]


def _shape(
    self: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any, scale_result: Any, *_: Any
) -> tuple[int, ...]:
    a, b = tuple(self.shape), tuple(mat2.shape)
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise ShapeError(
            f"shapes {a} and {b} cannot be multiplied", fix="give matrices (M, K) and (K, N)"
        )
    rows, columns = a[0], b[1]
    first, second = tuple(scale_a.shape), tuple(scale_b.shape)
    single = prod(first) == prod(second) == 1
    if not single and (first, second) != ((rows, 1), (1, columns)):
        raise ShapeError(
            f"scales of shapes {first} and {second} fit no scaling of a product ({rows}, "
            f"{columns})",
            fix=f"give one number each, or scale_a ({rows}, 1) and scale_b (1, {columns})",
        )
    if bias is not None and tuple(bias.shape) != (columns,):
        raise ShapeError(f"a bias of shape {tuple(bias.shape)}", fix=f"its shape is ({columns},)")
    if scale_result is not None and prod(tuple(scale_result.shape)) != 1:
        raise ShapeError(
            f"scale_result of shape {tuple(scale_result.shape)}", fix="give one number"
        )
    return rows, columns


def _dtype(
    self: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any, scale_result: Any,
    out_dtype: Any, *_: Any,
) -> DType:  # fmt: skip
    for name, matrix in (("self", self), ("mat2", mat2)):
        if matrix.dtype not in STORAGE_DTYPES:
            raise DTypeError(
                f"{name} is {matrix.dtype.name}, and no 8-bit float",
                fix="convert it with x.to(float8_e4m3fn), or multiply with @",
            )
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b), ("scale_result", scale_result)):
        if scale is not None and scale.dtype is not float32:
            raise DTypeError(f"{name} is {scale.dtype.name}", fix=f"use {name}.float()")
    return self.dtype if out_dtype is None else out_dtype


@composite(out=_shape, dtype=_dtype, differentiable=None, unbroadcast=False, method=False)
def _scaled_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: DType | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """``(self * scale_a) @ (mat2 * scale_b) + bias`` of 8-bit floats, added up in float32.

    Args:
        self: (M, K), of any 8-bit float.
        mat2: (K, N), of any 8-bit float.
        scale_a, scale_b: float32, one element each; or (M, 1) and (1, N).
        bias: (N,), of any floating dtype.
        scale_result: float32, one element; an 8-bit result is divided by it.
        out_dtype: dtype of the result, that of ``self`` for None.
        use_fast_accum: allows a device to add up with fewer digits.

    Returns (M, N). Raises :class:`ShapeError` and :class:`DTypeError` for arguments that do not
    fit, and refuses a wanted gradient.

    Example::

        a, b = cd.ones(2, 3).to(cd.float8_e4m3fn), cd.ones(3, 4).to(cd.float8_e4m3fn)
        two = cd.tensor(2.0)
        cd._scaled_mm(a, b, two, two, out_dtype=cd.bfloat16)  # (2, 4), each 12
    """
    # Scales of other shapes would broadcast to something else.
    _shape(self, mat2, scale_a, scale_b, bias, scale_result)
    wanted = _dtype(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype)
    scales = [s if s.ndim == 2 else s.reshape(()) for s in (scale_a, scale_b)]
    product = lazy.matmul(self.to(float32), mat2.to(float32)) * scales[0] * scales[1]
    if bias is not None:
        product = product + bias.to(float32)
    if scale_result is not None and wanted in STORAGE_DTYPES:
        product = product / scale_result.reshape(())
    return product.to(wanted)
