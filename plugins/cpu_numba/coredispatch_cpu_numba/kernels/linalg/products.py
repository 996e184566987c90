"""Products of large matrices, where NumPy's BLAS does not use all of the processor.

The OpenBLAS in NumPy's wheels chooses its kernels by the name of the processor, and takes those
without AVX-512 for one that it does not know. Only there are these kernels registered, and they
take matrices that are worth packing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["FORMS", "KERNELS", "LEAST", "forms_over", "multiply"]

_LEAST = 1 << 15  # elements of the first factor
_ROWS, _DEPTH, _WIDTH = 64, 256, 32  # as in the loops; the last is the widest panel
_FEWEST_ROWS, _FEWEST_COLUMNS, _LEAST_DEPTH = 192, 64, 64
_SPLIT = 1 << 20
_pack, _pack_turned, _product, _product_turned = (
    Loop("linalg.products", name, _SPLIT)
    for name in ("pack", "pack_turned", "product", "product_turned")
)
_NARROW = (b"Haswell", b"Zen", b"Sandybridge", b"Excavator")


def _serves() -> bool:
    """Whether there are vectors that NumPy's BLAS leaves unused. Asked once, and without Numba."""
    if not getattr(np._core._multiarray_umath, "__cpu_features__", {}).get("AVX512F"):
        return False
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)
    except OSError:
        return False
    for name in ("scipy_openblas_get_corename64_", "openblas_get_corename64_",
                 "scipy_openblas_get_corename", "openblas_get_corename"):  # fmt: skip
        get = getattr(library, name, None)
        if get is not None:
            get.restype = ctypes.c_char_p
            return get() in _NARROW
    return False


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
) -> Any:
    """``bias + a @ b`` of dense matrices; ``turned`` says which lie there as their transposed.

    Args:
        make: makes the result, of a shape and a dtype
        run: ``run(loop, *arguments)`` runs a loop, or keeps it to be run later
        empty: makes the memory that is needed only meanwhile
    """
    if rows < _FEWEST_ROWS or columns < _FEWEST_COLUMNS or depth < _LEAST_DEPTH:
        return NotImplemented
    own = a.dtype
    if not (is_dense(a, _LEAST) and is_dense(b, 1) and b.dtype == own):
        return NotImplemented
    if bias is None:
        bias = np.zeros(columns, own)
    elif not (is_dense(bias, 1) and bias.dtype == own and bias.shape == (columns,)):
        return NotImplemented
    slices, blocks = (depth + _DEPTH - 1) // _DEPTH, (rows + _ROWS - 1) // _ROWS
    packed = empty(depth * (columns + _WIDTH), own)
    pack = _pack_turned if "b" in turned else _pack
    run(pack, own, depth * columns, slices, b, depth, columns, packed, grain=1)
    out = make((rows, columns), own)
    edge = empty(blocks * _ROWS * _WIDTH, own)
    block = empty(blocks * _ROWS * _DEPTH if "a" in turned else 0, own)
    loop = _product_turned if "a" in turned else _product
    parts = min(4 * thread_count.wanted, blocks)
    given = (a, rows, depth, packed, columns, bias, out, edge, block)
    run(loop, own, rows * columns, blocks, *given, grain=(blocks + parts - 1) // parts)
    return out


def forms_over(multiplied: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The operators that are one product of matrices, by name.

    ``multiplied(a, b, bias, rows, depth, columns, turned)`` is ``bias + a @ b``; ``turned`` has an
    ``a`` or a ``b`` where that lies there as its transposed. It checks dtypes and layouts.
    """

    def linear(x: np.ndarray, weight: np.ndarray, bias: Any) -> Any:
        """``x @ weight.T + bias``"""
        if weight.ndim != 2 or x.ndim < 2 or x.shape[-1] != weight.shape[1]:
            return NotImplemented
        rows, (columns, depth) = prod(x.shape[:-1]), weight.shape
        out = multiplied(x, weight, bias, rows, depth, columns, "b")
        return out if out is NotImplemented else out.reshape(*x.shape[:-1], columns)

    def linear_weight_grad(grad: np.ndarray, x: np.ndarray) -> Any:
        """``grad.T @ x`` over all rows"""
        if grad.ndim < 2 or grad.shape[:-1] != x.shape[:-1]:
            return NotImplemented
        rows, columns = grad.shape[-1], x.shape[-1]
        return multiplied(grad, x, None, rows, prod(x.shape[:-1]), columns, "a")

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
        out = multiplied(a, b, None, rows, depth, columns, turned)
        shape = (rows,) if "a" in turned else a.shape[:-1]
        return out if out is NotImplemented else out.reshape(*shape, columns)

    return {"linear": linear, "linear_weight_grad": linear_weight_grad, "matmul": matmul}


FORMS = forms_over(multiply)
KERNELS: dict[str, Callable[..., Any]] = FORMS if _serves() else {}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
