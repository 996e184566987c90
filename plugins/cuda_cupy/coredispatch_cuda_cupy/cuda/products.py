"""Products by cuBLASLt: what is more than one call of CuPy's, or copies its factors there.

That is `linear` with a bias, sums of a product and something else, and products of many matrices.
What the library does not take, and all of it where the library is not there, is CuPy's as before.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from coredispatch_cuda_cupy import cublaslt
from coredispatch_cuda_cupy.cublaslt import Matrix, Product, Products, alignment_of
from coredispatch_cuda_cupy.cuda.layout import dense

__all__ = ["Lines", "Multiplier", "kernels"]

MULTIPLIED = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
#: rows, columns and matrices of a product are counted in 32 bits
_MOST = 2**31 - 1


class Lines(NamedTuple):
    """A row-major matrix in memory, the way cuBLASLt sees it.

    What lies there column-major is ``x`` itself where ``plain``, and its transpose otherwise.
    """

    x: Any
    rows: int
    columns: int
    ld: int
    plain: bool
    stride: int = 0

    def turned(self) -> Matrix:
        """The transpose of the matrix, as a factor."""
        stored = (self.rows, self.columns) if self.plain else (self.columns, self.rows)
        return Matrix(self.x.dtype.name, *stored, self.ld, self.plain, self.stride)


def _laid_out(x: Any, stride: int = 0) -> Lines | None:
    """How the matrices of the last two dimensions lie; None where neither dimension is dense."""
    rows, columns = x.shape[-2:]
    down, along = (s // x.itemsize for s in x.strides[-2:])
    if along == 1 or columns == 1:
        ld = columns if rows == 1 else down
        if ld >= columns:
            return Lines(x, rows, columns, ld, False, stride)
    if down == 1 or rows == 1:
        ld = rows if columns == 1 else along
        if ld >= rows:
            return Lines(x, rows, columns, ld, True, stride)
    return None


def _batch_stride(x: Any, batch: tuple[int, ...]) -> int | None:
    """Elements from one matrix to the next over all of ``batch``; None where they differ."""
    lead = len(batch) - (x.ndim - 2)
    strides = [0] * lead + [
        0 if n == 1 else s // x.itemsize for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True)
    ]
    stride, span = 0, 1
    for n, s in zip(reversed(batch), reversed(strides), strict=True):
        if n == 1:
            continue
        if span == 1:
            stride = s
        elif s != stride * span:
            return None
        span *= n
    return stride


class Multiplier:
    """Products of row-major arrays: ``D = A @ B`` is ``D^T = B^T @ A^T`` of column-major ones."""

    def __init__(self, cupy: Any, found: Any) -> None:
        self.cupy = cupy
        self.products = Products(cupy, found)

    def many(self, x: Any, batch: tuple[int, ...]) -> Lines | None:
        """The matrices of an array, broadcast to ``batch``; a copy where they lie otherwise."""
        stride = _batch_stride(x, batch)
        found = None if stride is None else _laid_out(x, stride)
        if found is None:
            if stride is None:
                x = self.cupy.broadcast_to(x, (*batch, *x.shape[-2:]))
            x = self.cupy.ascontiguousarray(x)
            stride = _batch_stride(x, batch)
            found = None if stride is None else _laid_out(x, stride)
        return found

    def multiply(
        self,
        a: Lines,
        b: Lines,
        out: Any,
        batch: int = 1,
        *,
        epilogue: str = "",
        bias: Any = None,
        aux: Any = None,
        **options: Any,
    ) -> bool:
        """``out = epilogue(a @ b)`` for dense ``out``; False where the library does not take it."""
        core = self.cupy._core
        tf32 = out.dtype.name in ("float32", "complex64") and (
            core.get_compute_type(np.dtype(np.float32)) == core.COMPUTE_TYPE_TF32
        )
        m, n = b.columns, a.rows
        if max(m, n, a.columns, batch) > _MOST:
            return False
        d = Matrix(out.dtype.name, m, n, m, False, m * n)
        ld = 0 if aux is None else m
        at_b, at_a, at_d = (alignment_of(x.data.ptr) for x in (b.x, a.x, out))
        beside = [alignment_of(x.data.ptr) for x in (bias, aux) if x is not None]
        places = (at_b, at_a, at_d, min(beside, default=0))
        product = Product(b.turned(), a.turned(), d, batch, epilogue, tf32, places, ld)
        return self.products.run(product, b.x, a.x, out, bias=bias, aux=aux, **options)


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator; none without the library."""
    found = cublaslt.library(cupy)
    if found is None:
        return {}
    multiplier = Multiplier(cupy, found)

    def matmul(self: Any, other: Any) -> Any:
        if not _alike(self, other) or max(self.ndim, other.ndim) < 3:
            return NotImplemented
        if self.shape[-1] != other.shape[-2]:
            return NotImplemented
        batch = _broadcast(self.shape[:-2], other.shape[:-2])
        if batch is None:
            return NotImplemented
        out = cupy.empty((*batch, self.shape[-2], other.shape[-1]), self.dtype)
        a, b = multiplier.many(self, batch), multiplier.many(other, batch)
        if a is None or b is None or not multiplier.multiply(a, b, out, prod(batch)):
            return NotImplemented
        return out

    def linear(input: Any, weight: Any, bias: Any) -> Any:
        return linear_with(multiplier, input, weight, bias, "")

    def added(self: Any, first: Any, second: Any, beta: Any, alpha: Any) -> Any:
        """``beta * self + alpha * (first @ second)`` with ``self`` copied to where the sum goes."""
        if not _alike(first, second) or self.dtype != first.dtype or _is_array(beta, alpha):
            return NotImplemented
        if first.ndim != second.ndim or first.shape[:-2] != second.shape[:-2]:
            return NotImplemented
        shape = (*first.shape[:-1], second.shape[-1])
        if first.shape[-1] != second.shape[-2] or _broadcast(self.shape, shape) != shape:
            return NotImplemented
        batch = first.shape[:-2]
        a, b = multiplier.many(first, batch), multiplier.many(second, batch)
        if a is None or b is None:
            return NotImplemented
        out = cupy.empty(shape, first.dtype)
        if not batch and self.shape == shape[1:] and beta == 1 and self.dtype.kind != "c":
            options = {"epilogue": "bias", "bias": dense(cupy, self)}
        else:
            options = {"beta": beta}
            if beta:  # what is multiplied by 0 is not read, so that NaN there is not seen
                out[...] = self
        taken = multiplier.multiply(a, b, out, prod(batch), alpha=alpha, **options)
        return out if taken else NotImplemented

    def addmm(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
        if mat1.ndim != 2 or mat2.ndim != 2:
            return NotImplemented
        return added(self, mat1, mat2, beta, alpha)

    def baddbmm(self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Any:
        if batch1.ndim != 3 or batch2.ndim != 3:
            return NotImplemented
        return added(self, batch1, batch2, beta, alpha)

    return {"matmul": matmul, "linear": linear, "addmm": addmm, "baddbmm": baddbmm}


def linear_with(multiplier: Multiplier, input: Any, weight: Any, bias: Any, activation: str) -> Any:
    """``activation(input @ weight.T + bias)`` in one kernel; NotImplemented where there is none.

    ``activation`` is "", "relu" or "gelu" (by tanh).
    """
    cupy = multiplier.cupy
    if weight.ndim != 2 or not input.ndim or not _alike(input, weight, least=1):
        return NotImplemented
    if input.shape[-1] != weight.shape[1] or (bias is None and not activation):
        return NotImplemented
    if bias is not None and (bias.shape != weight.shape[:1] or bias.dtype != weight.dtype):
        return NotImplemented
    if input.dtype.kind == "c":  # cuBLASLt has no epilogues for complex numbers
        return NotImplemented
    shape = (*input.shape[:-1], weight.shape[0])
    rows = input.reshape(prod(input.shape[:-1]), input.shape[-1])
    a, b = multiplier.many(rows, ()), multiplier.many(weight.T, ())
    out = cupy.empty(shape, input.dtype)
    if a is None or b is None:
        return NotImplemented
    epilogue = "_".join(part for part in (activation, bias is not None and "bias") if part)
    given = None if bias is None else dense(cupy, bias)
    return out if multiplier.multiply(a, b, out, epilogue=epilogue, bias=given) else NotImplemented


def _alike(a: Any, b: Any, least: int = 2) -> bool:
    """Whether both are arrays of one dtype that cuBLASLt multiplies, with elements."""
    if a.dtype != b.dtype or a.dtype.name not in MULTIPLIED:
        return False
    return bool(a.ndim >= least and b.ndim >= least and a.size and b.size)


def _is_array(*numbers: Any) -> bool:
    return any(hasattr(number, "dtype") for number in numbers)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that both are broadcast to; None where they do not fit."""
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None
