"""Products of large matrices by the BLAS that the user installed or named (``blas.py``)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba import blas
from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.linalg.products import forms_over

__all__ = ["FORMS", "KERNELS", "LEAST", "PRIORITY", "multiply", "served"]

PRIORITY = 12  # above the pack's own products
_LEAST = 1 << 10  # elements of the first factor
_LEAST_PRODUCTS = 1 << 19  # a call costs 4 us, NumPy's less than half
_SPLIT = 1 << 20  # products from which threads share them
_BLOCK = 1 << 22  # products of a block: what packing costs is a hundredth of that
_MOST_BLOCKS, _NARROWEST = 16, 64
_product = Loop("linalg.library", "product", _SPLIT)


def _pieces(length: int, count: int) -> int:
    """How long a piece is where ``length`` is cut into ``count``: whole tiles of registers."""
    return -(-length // (count * _NARROWEST)) * _NARROWEST


def _blocks(rows: int, depth: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a block. The sizes decide alone: results are the same in any threads."""
    count = max(1, min(_MOST_BLOCKS, rows * depth * columns // _BLOCK))
    if rows >= columns:
        return min(rows, _pieces(rows, count)), columns
    return rows, min(columns, _pieces(columns, count))


def multiply(
    a: np.ndarray,
    b: np.ndarray,
    bias: Any,
    rows: int,
    depth: int,
    columns: int,
    turned: str,
    *,
    make: Callable[..., np.ndarray] = np.empty,
    run: Callable[..., None] = Loop.__call__,
    empty: Callable[..., np.ndarray] = np.empty,
    count: int = 1,
) -> Any:
    """``bias + a @ b`` of ``count`` pairs of dense matrices, as ``products.multiply``."""
    products, own = rows * depth * columns, a.dtype
    if products * count < _LEAST_PRODUCTS or min(rows, columns, depth) < 2:
        return NotImplemented
    if not (is_dense(a, _LEAST) and is_dense(b, 1) and b.dtype == own):
        return NotImplemented
    if bias is not None and not (is_dense(bias, 1) and bias.shape == (columns,)):
        return NotImplemented
    if bias is not None and (bias.dtype != own or run is not Loop.__call__):
        return NotImplemented
    function = blas.address("dgemm" if own.itemsize == 8 else "sgemm")
    tall, wide = _blocks(rows, depth, columns)
    blocks = -(-rows // tall) * -(-columns // wide) * count
    out = make((count * rows, columns), own)
    if bias is not None:
        out[...] = bias
    given = (function, a, b, out, int("a" in turned), int("b" in turned), rows, depth, columns)
    grain = 1 if products >= _SPLIT else max(1, count // 16)
    run(
        _product, own, products * count, blocks, *given, int(bias is not None), tall, wide,
        grain=grain,
    )  # fmt: skip
    return out


def stacks(a: np.ndarray, b: np.ndarray) -> Any:
    """Products of two stacks of matrices."""
    if a.ndim < 3 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return NotImplemented
    (*outer, rows, depth), columns = a.shape, b.shape[-1]
    turned = ""
    if not a.flags.c_contiguous:
        a, turned = a.mT, "a"
    if not b.flags.c_contiguous:
        b, turned = b.mT, turned + "b"
    out = multiply(a, b, None, rows, depth, columns, turned, count=prod(outer))
    return out if out is NotImplemented else out.reshape(*outer, rows, columns)


def matmul(a: np.ndarray, b: np.ndarray) -> Any:
    """``a @ b`` of one matrix ``b``, or of two stacks."""
    return FORMS["matmul"](a, b) if b.ndim == 2 else stacks(a, b)


FORMS = forms_over(multiply)
served = multiply
KERNELS: dict[str, Callable[..., Any]] = (
    {} if blas.library() is None else {**FORMS, "bmm": stacks, "matmul": matmul}
)
LEAST = dict.fromkeys(KERNELS, _LEAST)
