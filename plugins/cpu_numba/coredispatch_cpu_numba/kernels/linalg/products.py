"""Products of large matrices, and of stacks, where NumPy's BLAS leaves some of the processor.

The OpenBLAS in NumPy's wheels chooses its kernels by the name of the processor, and takes those
without AVX-512 for one that it does not know. There these kernels are registered, and take matrices
that are worth packing. On Intel's processors with AVX-512 its kernels take long for many rows and
few columns: there these take such products.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import constant, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["FORMS", "KERNELS", "LEAST", "forms_over", "multiply", "served", "shared"]

_LEAST = 1 << 11  # elements of the first factor
_ROWS, _DEPTH, _WIDTH = 64, 256, 32  # as in the loops; the last is the widest panel
_FEW = 16  # rows of two tiles: as many as share what they read of a panel at the least
_FEWEST_ROWS, _FEWEST_COLUMNS, _LEAST_DEPTH = 32, 32, 32
_SPLIT, _SPLIT_PACKING = 1 << 19, 1 << 17
_LEAST_STACK, _LEAST_WORK, _LEAST_ROWS, _SPLIT_STACK = 1 << 10, 1 << 16, 16, 1 << 20
# For one matrix of a stack: fewer are not worth packing, and BLAS shares more among threads.
_LEAST_PRODUCTS, _MOST_PRODUCTS = 1 << 10, 1 << 21
_pack, _pack_turned = (
    Loop("linalg.products", name, _SPLIT_PACKING) for name in ("pack", "pack_turned")
)
_product, _product_turned = (
    Loop("linalg.products", name, _SPLIT) for name in ("product", "product_turned")
)
#: names of OpenBLAS' kernels without AVX-512
_NARROW = ("Haswell", "Zen", "Sandybridge", "Excavator")
#: beside those with AVX-512. Measured on a Xeon (SkylakeX), in units of PyTorch's time: 2048x64x64
#: 1.13 (OpenBLAS 1.34), 1024x512x32 1.05 (1.21), 512x64x512 1.06 (1.12), 512x512x512 1.03 (1.04),
#: 64x784x512 1.34 (1.15)
_MANY_ROWS, _NARROW_COLUMNS = 512, 128

_HAS_AVX512 = getattr(np._core._multiarray_umath, "__cpu_features__", {}).get("AVX512F", False)


def _kernels_of_openblas() -> str:
    """Which kernels NumPy's OpenBLAS chose, "" for another BLAS. Asked once, and without Numba."""
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)
    except OSError:
        return ""
    for name in ("scipy_openblas_get_corename64_", "openblas_get_corename64_",
                 "scipy_openblas_get_corename", "openblas_get_corename"):  # fmt: skip
        get = getattr(library, name, None)
        if get is not None:
            get.restype = ctypes.c_char_p
            return str(get().decode())
    return ""


def _is_intel() -> bool:
    try:
        with open("/proc/cpuinfo") as file:
            return "GenuineIntel" in file.read(200)
    except OSError:
        return False


#: whether there are vectors that NumPy's BLAS leaves unused
_SERVES = _HAS_AVX512 and _kernels_of_openblas() in _NARROW
_SERVES_TALL = _HAS_AVX512 and not _SERVES and _kernels_of_openblas() == "SkylakeX" and _is_intel()


def shared(rows: int, units: int = 1) -> tuple[int, int, int]:
    """Rows of a block, how many blocks there are, and how many one thread takes at a time.

    Threads find enough to do: that many rows ``units`` times.
    """
    parts = 4 * thread_count.wanted if thread_count.wanted > 1 else 1
    tall = min(_ROWS, -(-rows * units // (parts * _FEW)) * _FEW)
    blocks = -(-rows // tall)
    return tall, blocks, -(-blocks * units // parts)


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
    products = rows * depth * columns
    if rows < _FEWEST_ROWS or columns < _FEWEST_COLUMNS or depth < _LEAST_DEPTH:
        return NotImplemented
    if products < _SPLIT:
        return NotImplemented
    own = a.dtype
    if not (is_dense(a, _LEAST) and is_dense(b, 1) and b.dtype == own):
        return NotImplemented
    if bias is None:
        bias = np.zeros(columns, own)
    elif not (is_dense(bias, 1) and bias.dtype == own and bias.shape == (columns,)):
        return NotImplemented
    slices, (tall, blocks, grain) = (depth + _DEPTH - 1) // _DEPTH, shared(rows)
    packed = empty(depth * (columns + _WIDTH), own)
    pack = _pack_turned if "b" in turned else _pack
    run(pack, own, depth * columns, slices, b, depth, columns, packed, grain=1)
    out = make((rows, columns), own)
    edge = empty(blocks * tall * _WIDTH, own)
    block = empty(blocks * tall * _DEPTH if "a" in turned else 0, own)
    loop = _product_turned if "a" in turned else _product
    given = (a, rows, depth, packed, columns, bias, out, edge, block, tall)
    run(loop, own, products, blocks, *given, grain=grain)
    return out


def multiply_tall(
    a: np.ndarray,
    b: np.ndarray,
    bias: Any,
    rows: int,
    depth: int,
    columns: int,
    turned: str,
    **given: Any,
) -> Any:
    """As :func:`multiply`, of many rows and few columns."""
    if rows < _MANY_ROWS or columns > _NARROW_COLUMNS:
        return NotImplemented
    return multiply(a, b, bias, rows, depth, columns, turned, **given)


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


def stacks(a: np.ndarray, b: np.ndarray) -> Any:
    """Products of two stacks of small matrices. Threads share them, and BLAS packs each anew."""
    if a.ndim < 3 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return NotImplemented
    (*outer, rows, depth), columns = a.shape, b.shape[-1]
    count, products = prod(outer), rows * depth * columns
    if not _LEAST_PRODUCTS <= products <= _MOST_PRODUCTS or count * products < _LEAST_WORK:
        return NotImplemented
    if rows < _LEAST_ROWS or (columns % _WIDTH and columns < 3 * _WIDTH):
        return NotImplemented  # tiles and panels would be far from full
    turned = ""
    if not a.flags.c_contiguous:
        a, turned = a.mT, "_a_turned"
    elif not b.flags.c_contiguous:
        if depth < _LEAST_ROWS:  # packing short rows costs as much as the products
            return NotImplemented
        b, turned = b.mT, "_b_turned"
    own = a.dtype
    if not (is_dense(a, _LEAST_STACK) and is_dense(b, 1) and b.dtype == own):
        return NotImplemented
    out = np.empty((*outer, rows, columns), own)
    zeros = constant(columns, own, 0.0)
    loop, grain = _stacks[turned], max(1, count // (4 * thread_count.wanted))
    loop(own, count * products, count, a, b, rows, depth, columns, zeros, out, grain=grain)
    return out


def matmul(a: np.ndarray, b: np.ndarray) -> Any:
    """``a @ b`` of one matrix ``b``, or of two stacks."""
    return FORMS["matmul"](a, b) if _SERVES and b.ndim == 2 else stacks(a, b)


def _is_one_matrix(a: Any, b: Any) -> bool:
    return type(b) is np.ndarray and b.ndim == 2


def _has_stack(a: Any, b: Any) -> bool:
    return type(b) is np.ndarray and b.ndim > 2


_stacks = {
    turned: Loop("linalg.products", f"stacks{turned}", _SPLIT_STACK)
    for turned in ("", "_a_turned", "_b_turned")
}

FORMS = forms_over(multiply)
#: what the registered kernels multiply by
served: Callable[..., Any] = multiply if _SERVES else multiply_tall
#: An OpenBLAS with kernels for AVX-512 has some for small matrices: it needs no help.
_STACKS: dict[str, Callable[..., Any]] = (
    {"bmm": stacks, "matmul": matmul} if _SERVES or not _HAS_AVX512 else {}
)
_ONE_MATRIX: dict[str, Callable[..., Any]] = forms_over(served) if _SERVES or _SERVES_TALL else {}
KERNELS: dict[str, Callable[..., Any]] = {**_ONE_MATRIX, **_STACKS}
LEAST: dict[str, int] = {
    **dict.fromkeys(KERNELS, _LEAST),
    **dict.fromkeys(_STACKS, _LEAST_STACK),
}
WHEN: dict[str, Callable[..., bool]] = {}
if not _SERVES and _STACKS:
    WHEN["matmul"] = _has_stack
elif _SERVES_TALL:
    WHEN["matmul"] = _is_one_matrix
