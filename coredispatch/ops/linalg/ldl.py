"""The factorization ``P L D L^T P^T`` of symmetric matrices that need not be definite.

Bunch and Kaufman, "Some stable methods for calculating inertia and solving symmetric linear
systems" (1977); LAPACK's routines sytf2, hetf2 and sytrs, lower triangle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.linalg.factorizations import FLOATS, lapack_dtype, matrix_shape, square_shape
from coredispatch.ops.linalg.lu import pivot_magnitude
from coredispatch.ops.linalg.products import matmul
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import broadcast_shapes, conditioned
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import DType, composite
from coredispatch.registry.model.dtypes import bool_, int32
from coredispatch.registry.model.errors import DTypeError, LinAlgError, ShapeError

_ALPHA = (1 + math.sqrt(17)) / 8


def _largest(column: Any) -> tuple[int, float]:
    """Where the element of greatest magnitude is, and that magnitude; (0, 0.0) of nothing."""
    if not column.shape[0]:
        return 0, 0.0
    size = pivot_magnitude(column)
    place = int(lazy.argmax(size))
    return place, float(size[place])


def _choose(a: Any, k: int) -> tuple[int, int]:
    """``(row to bring to the diagonal, size of the block)`` of step ``k``; row -1: all is zero."""
    here = float(pivot_magnitude(a[k, k]))
    place, below = _largest(a[k + 1 :, k])
    place += k + 1
    if max(here, below) == 0:
        return -1, 1
    if here >= _ALPHA * below:
        return k, 1
    row = max(_largest(a[place, k:place])[1], _largest(a[place + 1 :, place])[1])
    if here >= _ALPHA * below * (below / row):
        return k, 1
    return place, 1 if float(pivot_magnitude(a[place, place])) >= _ALPHA * row else 2


def _swapped(a: Any, i: int, j: int, conjugate: Any) -> None:
    """Exchange rows and columns ``i`` < ``j`` of the trailing matrix, lower triangle only."""

    def exchange(first: Any, second: Any, convert: Any) -> None:
        kept = lazy.clone(a[first])
        a[first], a[second] = convert(lazy.clone(a[second])), convert(kept)

    def as_it_is(x: Any) -> Any:
        return x

    exchange((slice(j + 1, None), i), (slice(j + 1, None), j), as_it_is)
    exchange((slice(i + 1, j), i), (j, slice(i + 1, j)), conjugate)
    exchange((i, i), (j, j), as_it_is)
    a[j, i] = conjugate(lazy.clone(a[j, i]))


def _factor_one(a: Any, hermitian: bool) -> tuple[list[int], int]:
    """Factor the matrix ``a`` in place; LAPACK's pivots and info."""
    conjugate = adjoint if hermitian else (lambda x: x)
    n, k, info = a.shape[0], 0, 0
    pivots: list[int] = []
    while k < n:
        target, size = _choose(a, k)
        if target < 0:
            info, target = info or k + 1, k
            pivots.append(k + 1)
            k += 1
            continue
        last = k + size - 1
        if target != last:
            _swapped(a, last, target, conjugate)
            if size == 2:
                kept = lazy.clone(a[last, k])
                a[last, k], a[target, k] = lazy.clone(a[target, k]), kept
        if size == 1:
            pivots.append(target + 1)
            if k + 1 < n:
                column = lazy.clone(a[k + 1 :, k])
                scaled = column / a[k, k]
                update = lazy.outer(scaled, conjugate(column))
                a[k + 1 :, k + 1 :] = a[k + 1 :, k + 1 :] - update
                a[k + 1 :, k] = scaled
        else:
            pivots += [-(target + 1)] * 2
            if k + 2 < n:
                block = lazy.clone(a[k : k + 2, k : k + 2])
                block[0, 1] = conjugate(lazy.clone(block[1, 0]))
                columns = lazy.clone(a[k + 2 :, k : k + 2])
                scaled = lazy.linalg_solve(block, columns, left=False)
                product = matmul(scaled, conjugate(lazy.transpose(columns, 0, 1)))
                a[k + 2 :, k + 2 :] = a[k + 2 :, k + 2 :] - product
                a[k + 2 :, k : k + 2] = scaled
        k += size
    return pivots, info


def _symmetric(make: Any) -> Iterator[Sample]:
    for s in ((4, 4), (1, 1), (5, 5), (2, 3, 3)):
        x = make(s)
        yield Sample(x + np.swapaxes(x, -2, -1))


def _factor_shapes(A: Any, *_: Any) -> list[tuple[int, ...]]:
    sizes = square_shape(A)
    return [sizes, sizes[:-1], sizes[:-2]]


def _factor_dtypes(A: Any, *_: Any) -> tuple[DType, DType, DType]:
    return lapack_dtype(A), int32, int32


@composite(
    out=_factor_shapes,
    dtype=_factor_dtypes,
    samples=_symmetric,
    dtypes=FLOATS,
    tolerance=conditioned,
    differentiable=None,
    namespace="linalg",
    method=False,
    fields=("LD", "pivots", "info"),
)
def linalg_ldl_factor_ex(
    A: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """``(LD, pivots, info)`` of symmetric (``hermitian``: Hermitian) matrices ``(*, n, n)``.

    Only the lower triangle is read, and ``LD`` is 0 above the diagonal. It packs D, whose blocks
    are 1 x 1 or 2 x 2, and below it L; ``pivots`` (int32) are LAPACK's: a positive one says with
    which row, counted from 1, a row was exchanged, two equal negative ones stand for a 2 x 2 block.
    ``info`` is the place of the first zero block, or 0. Not differentiable, as in PyTorch.
    """
    lapack_dtype(A)
    n = square_shape(A)[-1]
    lead = tuple(A.shape[:-2])
    out, pivots, info = [], [], []
    for x in shape.reshape(A, (math.prod(lead), n, n)):
        a = lazy.tril(x)
        found, failed = _factor_one(a, hermitian)
        out.append(lazy.tril(a))
        pivots.append(found)
        info.append(failed)
    if check_errors and any(info):
        first = next(i for i, failed in enumerate(info) if failed)
        raise LinAlgError(
            f"linalg.ldl_factor: (Batch element {first}): D[{info[first]},{info[first]}] is zero",
            fix="use linalg.ldl_factor_ex",
        )
    packed = lazy.reshape(lazy.stack(out), tuple(A.shape)) if out else lazy.clone(A)
    return linalg_ldl_factor_ex.result_type(
        (packed, _numbers(pivots, (*lead, n), A), _numbers([[i] for i in info], lead, A))
    )


def _numbers(rows: list[list[int]], sizes: tuple[int, ...], like: Any) -> Any:
    flat = [i for row in rows for i in row]
    parts = [lazy.full((1,), i, dtype=int32, device=like.device) for i in flat]
    none = lazy.zeros((0,), dtype=int32, device=like.device)
    return lazy.reshape(lazy.cat([none, *parts]), sizes)


@composite(
    samples=_symmetric,
    dtypes=FLOATS,
    tolerance=conditioned,
    differentiable=None,
    namespace="linalg",
    method=False,
    fields=("LD", "pivots"),
)
def linalg_ldl_factor(A: Tensor, *, hermitian: bool = False) -> tuple[Tensor, Tensor]:
    """``(LD, pivots)`` of :func:`linalg.ldl_factor_ex`; ``RuntimeError`` for a zero block."""
    found = linalg_ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return linalg_ldl_factor.result_type(tuple(found)[:2])


def _solve_one(a: Any, pivots: list[int], b: Any, hermitian: bool) -> None:
    """Solve in place for the columns of ``b``."""
    conjugate = adjoint if hermitian else (lambda x: x)
    n = a.shape[0]

    def swap(i: int, j: int) -> None:
        if i != j:
            kept = lazy.clone(b[i])
            b[i] = lazy.clone(b[j])
            b[j] = kept

    k = 0
    while k < n:
        size = 1 if pivots[k] > 0 else 2
        swap(k + size - 1, abs(pivots[k]) - 1)
        end = k + size
        b[end:] = b[end:] - matmul(a[end:, k:end], b[k:end])
        block = lazy.clone(a[k:end, k:end])
        if hermitian and block.dtype.is_complex:  # the diagonal is real, whatever stands beside it
            for i in range(size):
                block[i, i] = lazy.real(block[i, i])
        if size == 2:
            block[0, 1] = conjugate(lazy.clone(block[1, 0]))
        b[k:end] = lazy.linalg_solve(block, lazy.clone(b[k:end]))
        k = end
    k = n
    while k > 0:
        size = 1 if pivots[k - 1] > 0 else 2
        start = k - size
        across = conjugate(lazy.transpose(a[k:, start:k], 0, 1))
        b[start:k] = b[start:k] - matmul(across, b[k:])
        swap(k - 1, abs(pivots[k - 1]) - 1)
        k = start


def _factored(make: Any) -> Iterator[Sample]:
    packed = np.tril(make((3, 3)) + 5 * np.eye(3)).astype(make((1,)).dtype)
    yield Sample(packed, np.array([1, 2, 3], np.int32), make((3, 2)))


def _solved_shape(LD: Any, pivots: Any, B: Any, *_: Any) -> tuple[int, ...]:
    lead = broadcast_shapes([tuple(LD.shape[:-2]), tuple(B.shape[:-2])])
    return (*lead, *matrix_shape(B)[-2:])


@composite(
    out=_solved_shape,
    dtype=lapack_dtype,
    samples=_factored,
    dtypes=FLOATS,
    tolerance=conditioned,
    differentiable=None,
    namespace="linalg",
    method=False,
)
def linalg_ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with ``A @ X == B`` for the matrix whose :func:`linalg.ldl_factor` is given; stacks
    broadcast. ``B`` is ``(*, n, k)``. Not differentiable.
    """
    n = square_shape(LD)[-1]
    if matrix_shape(B)[-2] != n or tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise ShapeError(
            f"LD {tuple(LD.shape)}, pivots {tuple(pivots.shape)} and B {tuple(B.shape)} do not "
            "make a system",
            fix="use (*, n, n), (*, n) and (*, n, k)",
        )
    if pivots.dtype.is_floating_point or pivots.dtype.is_complex or pivots.dtype is bool_:
        raise DTypeError(
            f"the pivots are {pivots.dtype}, and are places of rows",
            fix="use the pivots of ldl_factor, int32",
        )
    columns = B.shape[-1]
    lead = broadcast_shapes([tuple(LD.shape[:-2]), tuple(B.shape[:-2])])
    count = math.prod(lead)
    dtype = lapack_dtype(LD)
    a = shape.reshape(lazy.expand(LD, (*lead, n, n)), (count, n, n))
    places = shape.reshape(lazy.expand(pivots, (*lead, n)), (count, n))
    b = lazy.clone(shape.reshape(lazy.expand(B, (*lead, n, columns)), (count, n, columns)))
    b = b.to_dtype(dtype)
    solved = [lazy.clone(b[i]) for i in range(count)]  # written to: no views of one tensor
    for i, part in enumerate(solved):
        _solve_one(a[i], [int(p) for p in places[i].tolist()], part, hermitian)
    return shape.reshape(lazy.stack(solved) if solved else b, (*lead, n, columns))
