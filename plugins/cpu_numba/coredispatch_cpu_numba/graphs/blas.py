"""Matrix products inside a compiled graph: NumPy's own BLAS, called without Python."""

from __future__ import annotations

import ctypes
from functools import cache as memoized
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..building import address_of_code, build
from .access import word

__all__ = ["Matrix", "Product", "product", "routine", "task"]

_ROW_MAJOR, _PLAIN, _TURNED = 101, 111, 112
_PREFIXES = ("scipy_cblas_{}64_", "cblas_{}64_", "scipy_cblas_{}", "cblas_{}")


@memoized
def routine(name: str) -> int:
    """The address of a routine of the BLAS that NumPy brings, 0 where it cannot be found."""
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)
    except (AttributeError, OSError):
        return 0
    for prefix in _PREFIXES:
        try:
            found = getattr(library, prefix.format(name))
        except AttributeError:
            continue
        return ctypes.cast(found, ctypes.c_void_p).value or 0
    return 0


class Matrix(NamedTuple):
    """A matrix as BLAS takes it: rows of ``leading`` elements, of the transposed if ``turned``."""

    turned: bool
    leading: int


def _matrix(rows: int, columns: int, strides: tuple[int, ...], itemsize: int) -> Matrix | None:
    """How the matrix with these strides in bytes lies in memory; None for neither way."""
    down, across = strides
    if (across == itemsize or columns == 1) and (rows == 1 or down % itemsize == 0):
        leading = columns if rows == 1 else down // itemsize
        if leading >= columns:
            return Matrix(False, max(leading, 1))
    if (down == itemsize or rows == 1) and (columns == 1 or across % itemsize == 0):
        leading = rows if columns == 1 else across // itemsize
        if leading >= rows:
            return Matrix(True, max(leading, 1))
    return None


class Product(NamedTuple):
    """A product of stacks of matrices.

    Attributes:
        words: the arguments; ``0``, ``1``, ``2`` stand for the addresses as ``("array", k)``.
        count: how many matrices.
        flops: multiplications of one.
    """

    words: list[Any]
    count: int
    flops: int


def product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Product | None:
    """``out = a @ b`` for stacks of matrices, None where BLAS cannot do it as they lie."""
    if a.dtype != b.dtype or a.dtype != out.dtype or a.dtype.char not in "fd":
        return None
    size = a.itemsize
    (m, k), n = a.shape[-2:], b.shape[-1]
    stack = out.shape[:-2]
    if not m * n * k:
        return None
    a, b = (np.broadcast_to(x, stack + x.shape[-2:]) for x in (a, b))
    kept = [d for d in range(len(stack)) if stack[d] != 1]
    joined = _joined([stack[d] for d in kept], [[x.strides[d] for d in kept] for x in (a, b, out)])
    if joined is None:
        return None
    sizes, strides = joined
    left, right, result = (_matrix(*x.shape[-2:], x.strides[-2:], size) for x in (a, b, out))
    if left is None or right is None or result is None or result.turned:
        return None
    steps = [own for triple in zip(*strides, strict=True) for own in triple] if sizes else [0] * 3
    steps += [0] * (6 - len(steps))
    inner = sizes[-1] if len(sizes) == 2 else 1
    if len(sizes) == 1:
        steps = [*[0] * 3, *steps[:3]]
        inner = sizes[0]
    arrays = [("array", 0), ("array", 1), ("array", 2)]
    char = "s" if a.dtype.char == "f" else "d"
    flags = [_TURNED if x.turned else _PLAIN for x in (left, right)]
    if m == 1 or n == 1:  # a vector: BLAS reads the matrix once
        if m == 1:
            matrix, turned = right, not right.turned
            rows, columns = (n, k) if right.turned else (k, n)
            step = a.strides[-1] // size if k > 1 else 1
            order, out_step = (1, 0), 1
        else:
            matrix, turned = left, left.turned
            rows, columns = (k, m) if left.turned else (m, k)
            step = b.strides[-2] // size if k > 1 else 1
            order, out_step = (0, 1), result.leading
        address = routine(f"{char}gemv")
        chosen = [_TURNED if turned else _PLAIN, rows, columns, matrix.leading, step, out_step]
        arrays = [arrays[order[0]], arrays[order[1]], arrays[2]]
        steps = [steps[t + o] for t in (0, 3) for o in (*order, 2)]
        kind = 1
    else:
        address = routine(f"{char}gemm")
        chosen = [*flags, m, n, k, left.leading, right.leading, result.leading]
        kind = 0
    if not address:
        return None
    words = [address, 2 * kind + (char == "d"), *arrays, inner, *steps, *chosen]
    count = 1
    for extent in sizes:
        count *= extent
    return Product(words, count, m * n * k)


def _joined(sizes: list[int], strides: list[list[int]]) -> Any:
    """The dimensions of a stack as at most two; None where they are more."""
    d = len(sizes) - 2
    while d >= 0:
        if all(own[d] == own[d + 1] * sizes[d + 1] for own in strides):
            sizes[d : d + 2] = [sizes[d] * sizes[d + 1]]
            for own in strides:
                del own[d]
        d -= 1
    return (sizes, strides) if len(sizes) <= 2 else None


def _caller(vector: bool, double: bool) -> Any:
    """An intrinsic that calls ``gemm`` or ``gemv`` at an address, with alpha 1 and beta 0."""
    word_type, flag, real = (
        ir.IntType(64),
        ir.IntType(32),
        ir.DoubleType() if double else ir.FloatType(),
    )

    @intrinsic
    def multiply(typingctx: Any, function: Any, a: Any, b: Any, c: Any, chosen: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            function, a, b, c, chosen = args
            table = builder.inttoptr(chosen, word_type.as_pointer())

            def read(k: int) -> Any:
                return builder.load(builder.gep(table, [word_type(k)]))

            def switch(k: int) -> Any:
                return builder.trunc(read(k), flag)

            order, one, zero = flag(_ROW_MAJOR), real(1.0), real(0.0)
            if vector:
                given = [
                    order,
                    switch(0),
                    read(1),
                    read(2),
                    one,
                    a,
                    read(3),
                    b,
                    read(4),
                    zero,
                    c,
                    read(5),
                ]
            else:
                given = [order, switch(0), switch(1), read(2), read(3), read(4), one, a, read(5), b]
                given += [read(6), zero, c, read(7)]
            kind = ir.FunctionType(ir.VoidType(), [x.type for x in given])
            builder.call(builder.inttoptr(function, kind.as_pointer()), given)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), codegen

    return multiply


_sgemm, _dgemm = _caller(False, False), _caller(False, True)
_sgemv, _dgemv = _caller(True, False), _caller(True, True)


def _product_task(address, lo, hi):
    function, kind = word(address, 0), word(address, 1)
    inner = word(address, 5)
    chosen = address + 8 * 12
    for k in range(lo, hi):
        first, second = k // inner, k % inner
        a = word(address, 2) + first * word(address, 6) + second * word(address, 9)
        b = word(address, 3) + first * word(address, 7) + second * word(address, 10)
        c = word(address, 4) + first * word(address, 8) + second * word(address, 11)
        if kind == 0:
            _sgemm(function, a, b, c, chosen)
        elif kind == 1:
            _dgemm(function, a, b, c, chosen)
        elif kind == 2:
            _sgemv(function, a, b, c, chosen)
        else:
            _dgemv(function, a, b, c, chosen)
    return 0


@memoized
def task() -> tuple[int, Any]:
    """The address of the compiled task for any product, and what keeps it alive."""
    signature = types.intp(types.intp, types.intp, types.intp)
    result = build(_product_task, signature, "graphs.product")
    return address_of_code(result), result
