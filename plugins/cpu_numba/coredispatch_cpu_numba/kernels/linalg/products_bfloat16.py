"""Products of bfloat16 matrices, where the processor has instructions for them.

AMX takes them as tiles, AVX512-BF16 in pairs; ``NUMBA_CPU_FEATURES`` says what there is. Sums are
float32 and round once. As in PyTorch on such a processor, subnormal numbers count as zero: that is
what the instructions do. Elsewhere, and for few numbers, ``halves`` converts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from typing import Any

import numpy as np

from coredispatch.plugin import dtypes, numpy_dtype
from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.linalg.products import forms_over, shared

__all__ = [
    "BFLOAT16",
    "KERNELS",
    "LEAST",
    "PRIORITY",
    "WHEN",
    "has_panels",
    "has_pairs",
    "packed",
    "tiles_packed",
]

#: above ``halves``, below the kernels for float32, whose calls never meet a predicate of these
PRIORITY = 7
BFLOAT16 = numpy_dtype(dtypes.bfloat16)
_LEAST = 512  # elements of the first factor
_FEWEST, _PRODUCTS = 8, 1 << 17  # rows, columns, and depth; multiplications
_DEPTH, _WIDTH = 256, 32  # as in the loops
_SPLIT = 1 << 16
_pack, _pack_turned, _product, _product_turned = (
    Loop("linalg.products_bfloat16", name, _SPLIT)
    for name in ("pack", "pack_turned", "product", "product_turned")
)
_TILE_DEPTH, _TILE_ROWS, _PANEL, _DEEP = 1024, 64, 16, 32  # as in the loops on tiles
_tiles_pack, _tiles_pack_turned, _tiles_product, _tiles_product_turned = (
    Loop("linalg.products_amx", name, _SPLIT)
    for name in ("pack", "pack_turned", "product", "product_turned")
)


@memoized
def has_pairs() -> bool:
    """Whether the loops are there. Imports Numba."""
    from coredispatch_cpu_numba.dots import has_pairs

    return has_pairs()


@memoized
def has_panels() -> bool:
    """Whether the loops on AMX tiles are there. Imports Numba."""
    from coredispatch_cpu_numba.tile_panels import has_panels

    return has_panels()


def packed(matrix: np.ndarray, depth: int, columns: int, turned: bool) -> np.ndarray:
    """``matrix`` (depth, columns), or its transposed where ``turned``, as panels of pairs."""
    pairs = (depth + 1) // 2
    out = np.empty(2 * pairs * (columns + _WIDTH), BFLOAT16)
    pack = _pack_turned if turned else _pack
    slices = (pairs + _DEPTH - 1) // _DEPTH
    pack(BFLOAT16, depth * columns, slices, matrix, depth, columns, out, grain=1)
    return out


def tiles_packed(matrix: np.ndarray, depth: int, columns: int, turned: bool) -> np.ndarray:
    """As :func:`packed`, as panels of AMX tiles."""
    panels = -(-columns // (2 * _PANEL)) * 2
    slices, deep = -(-depth // _TILE_DEPTH), -(-depth // _DEEP) * _DEEP
    out = np.empty(panels * _PANEL * deep, BFLOAT16)
    pack = _tiles_pack_turned if turned else _tiles_pack
    pack(BFLOAT16, depth * columns, slices * panels, matrix, depth, columns, out, grain=4)
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
    if has_panels():
        return _on_tiles(a, b, start, rows, depth, columns, turned)
    if depth % 2 and "a" not in turned:
        wider = np.zeros((rows, depth + 1), BFLOAT16)
        wider[:, :depth] = a.reshape(rows, depth)
        a = wider
    panels = packed(b, depth, columns, "b" in turned)
    out = np.empty((rows, columns), BFLOAT16)
    run = _product_turned if "a" in turned else _product
    tall, blocks, grain = shared(rows)
    given = (a, rows, depth, panels, columns, start, out, tall)
    run(BFLOAT16, rows * columns, blocks, *given, grain=grain)
    return out


def _on_tiles(
    a: np.ndarray, b: np.ndarray, start: Any, rows: int, depth: int, columns: int, turned: str
) -> np.ndarray:
    """``start + a @ b`` on AMX tiles."""
    right = tiles_packed(b, depth, columns, "b" in turned)
    out, blocks = np.empty((rows, columns), BFLOAT16), -(-rows // _TILE_ROWS)
    run = _tiles_product_turned if "a" in turned else _tiles_product
    grain = -(-blocks // min(4 * thread_count.wanted, blocks))
    run(BFLOAT16, rows * columns, blocks, a, rows, depth, right, columns, start, out, grain=grain)
    return out


def _accepts(x: Any, *others: Any) -> bool:
    return type(x) is np.ndarray and x.dtype == BFLOAT16


_FORMS = forms_over(_multiplied)
KERNELS: dict[str, Callable[..., Any]] = {**_FORMS, "mm": _FORMS["matmul"]}
WHEN: dict[str, Callable[..., bool]] = dict.fromkeys(KERNELS, _accepts)
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
