"""Products of bfloat16 matrices, where the processor has instructions for them.

Sums are float32 and round once. As in PyTorch on such a processor, subnormal numbers count as zero:
that is what the instructions do. Elsewhere, and for few numbers, ``halves`` converts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from math import prod
from typing import Any

import numpy as np

from coredispatch.plugin import dtypes, numpy_dtype
from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.entries import Loop

__all__ = ["BFLOAT16", "KERNELS", "LEAST", "PRIORITY", "WHEN", "has_pairs", "packed"]

#: above ``halves``, below the kernels for float32, whose calls never meet a predicate of these
PRIORITY = 7
BFLOAT16 = numpy_dtype(dtypes.bfloat16)
_LEAST = 512  # elements of the first factor
_FEWEST, _PRODUCTS = 16, 1 << 17  # rows, columns, and depth; multiplications
_ROWS, _DEPTH, _WIDTH = 64, 256, 32  # as in the loops
_SPLIT = 1 << 16
_pack, _pack_turned, _product, _product_turned = (
    Loop("products_bfloat16", name, _SPLIT)
    for name in ("pack", "pack_turned", "product", "product_turned")
)


@memoized
def has_pairs() -> bool:
    """Whether the loops are there. Imports Numba."""
    from coredispatch_cpu_numba.dots import has_pairs

    return has_pairs()


def packed(matrix: np.ndarray, depth: int, columns: int, turned: bool) -> np.ndarray:
    """``matrix`` (depth, columns), or its transposed where ``turned``, as panels of pairs."""
    pairs = (depth + 1) // 2
    out = np.empty(2 * pairs * (columns + _WIDTH), BFLOAT16)
    pack = _pack_turned if turned else _pack
    slices = (pairs + _DEPTH - 1) // _DEPTH
    pack(BFLOAT16, depth * columns, slices, matrix, depth, columns, out, grain=1)
    return out


def _fits(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype == BFLOAT16 and bool(x.flags.c_contiguous)


def _multiplied(
    a: np.ndarray, b: np.ndarray, bias: Any, rows: int, depth: int, columns: int, turned: str
) -> Any:
    """``bias + a @ b`` of dense matrices; ``turned`` says which lie there as their transposed."""
    if min(rows, columns, depth) < _FEWEST or rows * columns * depth < _PRODUCTS:
        return NotImplemented
    if not (_fits(a) and _fits(b)):
        return NotImplemented
    if bias is None:
        start = np.zeros(columns, np.float32)
    elif type(bias) is np.ndarray and bias.dtype == BFLOAT16 and bias.shape == (columns,):
        start = bias.astype(np.float32)
    else:
        return NotImplemented
    if not has_pairs():
        return NotImplemented
    if depth % 2 and "a" not in turned:
        wider = np.zeros((rows, depth + 1), BFLOAT16)
        wider[:, :depth] = a.reshape(rows, depth)
        a = wider
    panels = packed(b, depth, columns, "b" in turned)
    out = np.empty((rows, columns), BFLOAT16)
    blocks = (rows + _ROWS - 1) // _ROWS
    run = _product_turned if "a" in turned else _product
    parts = min(4 * thread_count.wanted, blocks)
    given = (a, rows, depth, panels, columns, start, out)
    run(BFLOAT16, rows * columns, blocks, *given, grain=(blocks + parts - 1) // parts)
    return out


def linear(x: np.ndarray, weight: np.ndarray, bias: Any) -> Any:
    """``x @ weight.T + bias``"""
    if weight.ndim != 2 or x.ndim < 2 or x.shape[-1] != weight.shape[1]:
        return NotImplemented
    rows, (columns, depth) = prod(x.shape[:-1]), weight.shape
    out = _multiplied(x, weight, bias, rows, depth, columns, "b")
    return out if out is NotImplemented else out.reshape(*x.shape[:-1], columns)


def linear_weight_grad(grad: np.ndarray, x: np.ndarray) -> Any:
    """``grad.T @ x`` over all rows"""
    if grad.ndim < 2 or grad.shape[:-1] != x.shape[:-1]:
        return NotImplemented
    rows, columns = grad.shape[-1], x.shape[-1]
    return _multiplied(grad, x, None, rows, prod(x.shape[:-1]), columns, "a")


def matmul(a: np.ndarray, b: np.ndarray) -> Any:
    """``a @ b`` of one matrix ``b``"""
    if type(b) is not np.ndarray or b.ndim != 2 or a.ndim < 2 or a.shape[-1] != b.shape[0]:
        return NotImplemented
    turned = ""
    if a.ndim == 2 and not a.flags.c_contiguous:
        a, turned = a.T, "a"
    rows, (depth, columns) = prod(a.shape[:-1]) if not turned else a.shape[1], b.shape
    if not b.flags.c_contiguous:
        b, turned = b.T, turned + "b"
    out = _multiplied(a, b, None, rows, depth, columns, turned)
    shape = (rows,) if "a" in turned else a.shape[:-1]
    return out if out is NotImplemented else out.reshape(*shape, columns)


def _accepts(x: Any, *others: Any) -> bool:
    return type(x) is np.ndarray and x.dtype == BFLOAT16


KERNELS: dict[str, Callable[..., Any]] = {
    "linear": linear,
    "linear_weight_grad": linear_weight_grad,
    "matmul": matmul,
    "mm": matmul,
}
WHEN: dict[str, Callable[..., bool]] = dict.fromkeys(KERNELS, _accepts)
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
