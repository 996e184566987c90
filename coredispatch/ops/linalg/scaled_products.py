"""Products of matrices of 8-bit floats, whose elements are numbers times a scale; also of groups.

Micikevicius et al., "FP8 Formats for Deep Learning" (2022): a matrix is stored as ``x / scale``, so
that it fills the range of the type, with one scale or one for each row of the first matrix and each
column of the second.
"""

from __future__ import annotations

from math import prod
from typing import Any

from coredispatch.ops.linalg.grouped_products import spans
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import DType, Tensor
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import STORAGE_DTYPES, bfloat16, float32
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError

__all__ = ["_scaled_grouped_mm", "_scaled_mm"]


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


# ---- of groups --------------------------------------------------------------------------------


def _grouped_shape(
    self: Any, mat2: Any, scale_a: Any, scale_b: Any, offs: Any = None, *_: Any
) -> tuple[int, ...]:
    a, b = tuple(self.shape), tuple(mat2.shape)
    if not {len(a), len(b)} <= {2, 3} or a[-1] != b[-2]:
        raise ShapeError(
            f"shapes {a} and {b} cannot be multiplied group by group",
            fix="give (G, M, K) and (G, K, N), of which a ragged one has two dimensions",
        )
    if (offs is None) != (len(a) == len(b) == 3):
        raise ArgumentError(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d",
            fix="offs is (G,), where each group ends",
        )
    if offs is not None and (len(offs.shape) != 1 or offs.shape[0] < 1):
        raise ShapeError(f"offs has the shape {tuple(offs.shape)}", fix="it is (G,)")
    groups, rows, columns = (a if offs is None else offs.shape)[0], a[-2], b[-1]
    if any(shape[0] != groups for shape in (a, b) if len(shape) == 3):
        raise ShapeError(
            f"there are {groups} groups, and the matrices are {a} and {b}",
            fix="a matrix of three dimensions has one for each group",
        )
    every, one = (groups, rows, columns), (rows, columns)
    *wanted, result = {
        (3, 3): ((groups, rows), (groups, columns), every),
        (2, 3): ((rows,), (groups, columns), one),
        (3, 2): ((groups, rows), (columns,), one),
        (2, 2): ((groups * rows,), (groups * columns,), every),
    }[len(a), len(b)]
    found = [tuple(scale_a.shape), tuple(scale_b.shape)]
    if found != wanted:
        raise ShapeError(
            f"scales of shapes {found[0]} and {found[1]} fit no product of {a} and {b}",
            fix=f"give scale_a {wanted[0]} and scale_b {wanted[1]}",
        )
    return result


def _grouped_dtype(
    self: Any, mat2: Any, scale_a: Any, scale_b: Any, offs: Any = None, bias: Any = None,
    scale_result: Any = None, out_dtype: Any = None, *_: Any,
) -> DType:  # fmt: skip
    _dtype(self, mat2, scale_a, scale_b, None, None, out_dtype)
    if offs is not None and offs.dtype.name not in ("int32", "int64"):
        raise DTypeError(f"offs is {offs.dtype.name}", fix="use offs.int()")
    wanted = bfloat16 if out_dtype is None else out_dtype
    if not wanted.is_floating_point or wanted in STORAGE_DTYPES:
        raise DTypeError(
            f"out_dtype={wanted.name} is not served", fix="use bfloat16, float16 or float32"
        )
    return wanted


@composite(
    out=_grouped_shape, dtype=_grouped_dtype, differentiable=None, unbroadcast=False, method=False
)
def _scaled_grouped_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: DType | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Products of groups of matrices of 8-bit floats, whose rows and columns have scales.

    Args:
        self: (G, M, K), or (M, K): then ``offs`` says where groups of its rows end, or of its
            columns where ``mat2`` has two dimensions, too.
        mat2: (G, K, N), or (K, N), whose columns are in groups, or whose rows.
        scale_a: float32, one for each row: (G, M), or (M,) where rows are in groups, or (G * M,)
            where both have two dimensions.
        scale_b: float32, one for each column: (G, N), (N,) or (G * N,).
        offs: (G,), int32 or int64: where each group ends, increasing. An end beyond the matrix is
            the matrix's; what is behind the last one gives 0.
        bias, scale_result: None.
        out_dtype: a floating dtype, bfloat16 for None.
        use_fast_accum: allows a device to add up with fewer digits.

    Returns (M, N) where one matrix has two dimensions, else (G, M, N). Raises
    :class:`ShapeError`, :class:`DTypeError` and :class:`ArgumentError` for arguments that do not
    fit, and refuses a wanted gradient.

    Example::

        a, b = cd.ones(5, 3).to(cd.float8_e4m3fn), cd.ones(2, 3, 4).to(cd.float8_e4m3fn)
        ends = cd.tensor([2, 5], dtype=cd.int32)  # two rows by b[0], three by b[1]
        cd._scaled_grouped_mm(a, b, cd.ones(5), cd.full((2, 4), 2.0), ends)  # (5, 4), each 6
    """
    _grouped_shape(self, mat2, scale_a, scale_b, offs)
    wanted = _grouped_dtype(self, mat2, scale_a, scale_b, offs, bias, scale_result, out_dtype)
    if bias is not None or scale_result is not None:
        raise ArgumentError("Bias and scale_result are not supported yet", fix="leave them out")
    a, b = self.to(float32), mat2.to(float32)
    if offs is None:
        product = lazy.matmul(a, b)
        scales = scale_a, scale_b
    elif a.ndim == b.ndim:
        parts = [
            lazy.matmul(lazy.narrow(a, 1, start, n), lazy.narrow(b, 0, start, n))
            for start, n in spans(offs.tolist(), a.shape[1])
        ]
        product, groups = lazy.stack(parts, 0), len(parts)
        scales = scale_a.reshape(groups, -1), scale_b.reshape(groups, -1)
    elif a.ndim == 2:
        product, scales = _by_rows(a, b, scale_b, offs), (scale_a, None)
    else:
        turned = _by_rows(b.mT, a.mT, scale_a, offs)
        product, scales = turned.mT, (None, scale_b)
    for scale, dim in zip(scales, (-1, -2), strict=True):
        product = product if scale is None else product * scale.unsqueeze(dim)
    return product.to(wanted)


def _by_rows(a: Any, b: Any, scale: Any, offs: Any) -> Any:
    """Groups of rows of ``a`` times a matrix of ``b`` each, whose columns have scales."""
    found = spans(offs.tolist(), a.shape[0])
    parts = [
        lazy.matmul(lazy.narrow(a, 0, start, n), b[k]) * scale[k]
        for k, (start, n) in enumerate(found)
    ]
    rest = a.shape[0] - sum(n for _, n in found)
    zeros = lazy.zeros((rest, b.shape[-1]), dtype=float32, device=a.device)
    return lazy.cat([*parts, zeros], 0)
