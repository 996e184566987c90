"""The LU decomposition with partial pivoting, and what is solved with it.

Golub and Van Loan, "Matrix computations", 4th edition, chapter 3. Derivatives: as in PyTorch, after
Walter and Lehmann, "Algorithmic differentiation of linear algebra functions" (2010), extended to
wide and tall matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch._warnings import warn_once
from coredispatch.ops.linalg.factorizations import (
    FLOATS,
    lapack_dtype,
    matrix_shape,
    square_shape,
)
from coredispatch.ops.linalg.products import matmul, mH
from coredispatch.ops.linalg.systems import linalg_solve_triangular
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.inspection import any_true
from coredispatch.ops.support.rules import conditioned, exact
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import DType, int32, int64
from coredispatch.registry.model.errors import DTypeError, LinAlgError, OpError, ShapeError

Shape = tuple[int, ...]


def _factor_shapes(A: Any, *_: Any) -> list[Shape]:
    *lead, m, n = matrix_shape(A)
    return [(*lead, m, n), (*lead, min(m, n)), tuple(lead)]


def _factor_dtypes(A: Any, *_: Any) -> tuple[DType, DType, DType]:
    return lapack_dtype(A), int32, int32


def proportions(make: Any) -> Iterator[Sample]:
    """``op(A)`` for matrices of every proportion, far from singular."""
    for s in ((4, 4), (5, 3), (3, 5), (1, 1), (2, 4, 3)):
        x = make(s)
        yield Sample((x + 4 * np.eye(*s[-2:])).astype(x.dtype))


def _lu_reference(A: Any, pivot: bool = True) -> tuple[Any, Any]:
    """The packed factors and LAPACK's pivots of a stack, one row after the other."""
    out = np.array(A, copy=True)
    *lead, m, n = out.shape
    pivots = np.zeros((*lead, min(m, n)), np.int32)
    for at in np.ndindex(*lead):
        a = out[at]
        for k in range(min(m, n)):
            size = np.abs(a[k:, k].real) + np.abs(a[k:, k].imag)
            p = k + int(np.argmax(size)) if pivot else k
            pivots[(*at, k)] = p + 1
            a[[k, p]] = a[[p, k]]
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return out, pivots


def _factor_reference(A: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    packed, pivots = _lu_reference(A, pivot)
    return packed, pivots, np.zeros(A.shape[:-2], np.int32)


@composite(
    out=_factor_shapes,
    dtype=_factor_dtypes,
    reference=_factor_reference,
    samples=proportions,
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
    fields=("LU", "pivots", "info"),
)
def linalg_lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """``(LU, pivots, info)`` of a stack of matrices ``(*, m, n)``.

    ``LU`` packs U and, below its diagonal, L without its ones. ``pivots`` (int32) says with which
    row, counted from 1, row i was exchanged; ``info`` (int32) is the place of the first zero on
    the diagonal of U, counted from 1, or 0. ``check_errors`` raises where one is not 0.
    ``pivot=False`` exchanges no rows.
    """
    lapack_dtype(A)
    *lead, m, n = matrix_shape(A)
    k = min(m, n)
    x = shape.reshape(A, (-1, m, n)) if A.numel() else lazy.clone(A)
    if not A.numel():
        zeros = lazy.ones((*lead, k), dtype=int32, device=A.device)
        return x, zeros, lazy.zeros(tuple(lead), dtype=int32, device=A.device)
    rows = lazy.arange(m, device=A.device)
    pivots = []
    info = lazy.zeros((x.shape[0],), dtype=int64, device=A.device)
    for i in range(k):
        column = pivot_magnitude(x[:, i:, i])
        place = lazy.argmax(column, 1) + i if pivot else lazy.full_like(info, i)
        pivots.append(place + 1)
        # The row that a row is read from: two of them exchanged.
        target = shape.unsqueeze(place, 1)
        source = lazy.where(rows == i, target, lazy.where(rows == target, i, rows))
        x = lazy.gather(x, 1, lazy.expand(shape.unsqueeze(source, 2), tuple(x.shape)))
        head = x[:, i : i + 1, i : i + 1]
        zero = lazy.eq(head, 0)
        none_yet = lazy.eq(info, 0) & lazy.reshape(zero, (-1,))
        info = lazy.where(none_yet, i + 1, info)
        multipliers = x[:, i + 1 :, i : i + 1] / lazy.where(zero, 1, head)
        rest = x[:, i + 1 :, i + 1 :] - matmul(multipliers, x[:, i : i + 1, i + 1 :])
        below = lazy.cat([x[:, i + 1 :, :i], multipliers, rest], 2)
        x = lazy.cat([x[:, : i + 1], below], 1)
    pivots = lazy.reshape(lazy.stack(pivots, 1).to_dtype(int32), (*lead, k))
    info = lazy.reshape(info.to_dtype(int32), tuple(lead))
    if check_errors:
        refuse_singular(info)
    return lazy.reshape(x, tuple(A.shape)), pivots, info


def pivot_magnitude(x: Any) -> Any:
    """What LAPACK compares pivots by: of complex numbers the sum of the parts, not the modulus."""
    if not x.dtype.is_complex:
        return lazy.abs(x)
    return lazy.abs(lazy.real(x)) + lazy.abs(lazy.imag(x))


def refuse_singular(info: Any) -> None:
    """Raise where the factorization of a matrix met a zero on the diagonal of U."""
    if info.device.type == "meta" or not any_true(info != 0):
        return
    first = int(lazy.argmax((lazy.reshape(info, (-1,)) != 0).to_dtype(int64)))
    place = int(lazy.reshape(info, (-1,))[first])
    where = f"(Batch element {first}): " if info.ndim else ""
    raise LinAlgError(
        f"torch.linalg.lu_factor: {where}U[{place},{place}] is zero and using it on lu_solve would "
        "result in a division by zero",
        fix="use linalg.lu_factor_ex, or linalg.lu",
    )


def _factors_gradient(grad: Any, packed: Any, pivots: Any, pivot: bool) -> Any:
    if grad is None:
        return None
    *_, m, n = packed.shape
    k = min(m, n)
    lower, upper = _triangles(packed)
    grad_l, grad_u = lazy.tril(grad[..., :k], -1), lazy.triu(grad[..., :k, :])
    square_l, square_u = lower[..., :k, :], upper[..., :k]

    def over_l(x: Any) -> Any:
        return linalg_solve_triangular(mH(square_l), x, upper=True, unitriangular=True)

    def over_u(x: Any) -> Any:
        return linalg_solve_triangular(mH(square_u), x, upper=False, left=False)

    if m == n:
        phi = lazy.tril(matmul(mH(lower), grad_l), -1) + lazy.triu(matmul(grad_u, mH(upper)))
        total = over_l(over_u(phi))
    elif m < n:
        phi = lazy.tril(matmul(mH(lower), grad_l) - matmul(grad_u, mH(upper)), -1)
        first = over_u(phi) + grad_u[..., :k]
        total = over_l(lazy.cat([first, grad_u[..., k:]], -1))
    else:
        phi = lazy.triu(matmul(grad_u, mH(upper)) - matmul(mH(lower), grad_l))
        first = over_l(phi) + grad_l[..., :k, :]
        total = over_u(lazy.cat([first, grad_l[..., k:, :]], -2))
    return matmul(_permutation(pivots, m, packed.dtype), total) if pivot else total


linalg_lu_factor_ex.vjp(
    A=lambda grad0, out0, out1, pivot: _factors_gradient(grad0, out0, out1, pivot)
)


def _triangles(packed: Any) -> tuple[Any, Any]:
    """L with its ones, and U."""
    *_, m, n = packed.shape
    k = min(m, n)
    ones = lazy.eye(m, k, dtype=packed.dtype, device=packed.device)
    return lazy.tril(packed[..., :k], -1) + ones, lazy.triu(packed[..., :k, :])


def _order_reference(pivots: Any, rows: int) -> Any:
    out = np.broadcast_to(np.arange(rows), (*pivots.shape[:-1], rows)).copy()
    for at in np.ndindex(*pivots.shape[:-1]):
        for i, p in enumerate(pivots[at]):
            out[at][[i, p - 1]] = out[at][[p - 1, i]]
    return out


@composite(
    out=lambda pivots, rows: (*pivots.shape[:-1], rows),
    dtype=int64,
    reference=_order_reference,
    samples=lambda make: (
        Sample(np.array([3, 2, 4, 4], np.int32), 4),
        Sample(np.array([[2, 2], [3, 3]], np.int32), 3),
    ),
    dtypes=(int32,),
    tolerance=exact,
    differentiable=False,
    namespace=(),
    method=False,
)
def lu_row_order(pivots: Tensor, rows: int) -> Tensor:
    """The order ``(*, rows)`` in which the pivots of a decomposition put rows, int64."""
    lead, k = tuple(pivots.shape[:-1]), pivots.shape[-1]
    order = lazy.expand(lazy.arange(rows, device=pivots.device), (*lead, rows))
    numbers = lazy.arange(rows, device=pivots.device)
    for i in range(k):
        target = pivots[..., i : i + 1].to_dtype(int64) - 1
        source = lazy.where(numbers == i, target, lazy.where(numbers == target, i, numbers))
        order = lazy.gather(order, -1, source)
    return lazy.clone(order)


def _permutation(pivots: Any, rows: int, dtype: Any) -> Any:
    """P with ``A == P @ L @ U``."""
    order = lu_row_order(pivots, rows)
    numbers = lazy.arange(rows, device=pivots.device)
    return (shape.unsqueeze(numbers, 1) == shape.unsqueeze(order, -2)).to_dtype(dtype)


@composite(
    cast="float32",
    reference=lambda A, *, pivot=True: _lu_reference(A, pivot),
    samples=proportions,
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
    fields=("LU", "pivots"),
)
def linalg_lu_factor(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    """``(LU, pivots)`` of :func:`linalg.lu_factor_ex`; raises ``RuntimeError`` where U has a zero
    on its diagonal.
    """
    packed, pivots, info = linalg_lu_factor_ex(A, pivot=pivot)
    refuse_singular(info)
    return linalg_lu_factor.result_type((packed, pivots))


linalg_lu_factor.vjp(A=lambda grad0, out0, out1, pivot: _factors_gradient(grad0, out0, out1, pivot))


def _unpack_reference(A: Any, *, pivot: bool = True) -> tuple[Any, Any, Any]:
    packed, pivots = _lu_reference(A, pivot)
    *_, m, n = A.shape
    k = min(m, n)
    order = _order_reference(pivots, m)
    p = (np.arange(m)[:, None] == order[..., None, :]).astype(A.dtype)
    p = p if pivot else np.zeros(0, A.dtype)
    return p, np.tril(packed[..., :k], -1) + np.eye(m, k), np.triu(packed[..., :k, :])


@composite(
    cast="float32",
    reference=_unpack_reference,
    samples=proportions,
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
    fields=("P", "L", "U"),
)
def linalg_lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """``(P, L, U)`` with ``A == P @ L @ U``: a permutation ``(*, m, m)``, L ``(*, m, k)`` with ones
    on its diagonal, U ``(*, k, n)``, k = min(m, n). Without ``pivot`` P is empty.
    """
    packed, pivots, _ = linalg_lu_factor_ex(A, pivot=pivot)
    lower, upper = _triangles(packed)
    if not pivot:
        empty = lazy.zeros((0,), dtype=packed.dtype, device=packed.device)
        return linalg_lu.result_type((empty, lower, upper))
    order = _permutation(pivots, packed.shape[-2], packed.dtype)
    return linalg_lu.result_type((order, lower, upper))


def _packed(make: Any) -> Iterator[Sample]:
    for sample in proportions(make):
        yield Sample(*_lu_reference(sample.args[0]))


@composite(
    samples=_packed,
    dtypes=FLOATS,
    tolerance=conditioned,
    fields=("P", "L", "U"),
    method=False,
)
def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """``(P, L, U)`` out of what :func:`linalg.lu_factor` gives; what is not asked for is empty.

    Raises ``RuntimeError`` for pivots that are not int32.
    """
    if LU_pivots.dtype is not int32:
        raise OpError(
            f"lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype, got "
            f"{LU_pivots.dtype}",
            fix="use the pivots of lu_factor",
        )
    *lead, m, n = matrix_shape(LU_data)
    if unpack_pivots and tuple(LU_pivots.shape) != (*lead, min(m, n)):
        raise ShapeError(
            f"pivots {tuple(LU_pivots.shape)} do not belong to a decomposition "
            f"{tuple(LU_data.shape)}",
            fix=f"use pivots of shape {(*lead, min(m, n))}",
        )
    empty = lazy.zeros((0,), dtype=LU_data.dtype, device=LU_data.device)
    lower, upper = _triangles(LU_data) if unpack_data else (empty, lazy.clone(empty))
    rows = LU_data.shape[-2]
    order = _permutation(LU_pivots, rows, LU_data.dtype) if unpack_pivots else lazy.clone(empty)
    return lu_unpack.result_type((order, lower, upper))


def _solvable(make: Any) -> Iterator[Sample]:
    for s, b in (((4, 4), (4, 2)), ((2, 3, 3), (2, 3, 1)), ((1, 1), (1, 3)), ((3, 3), (3, 3))):
        x = (make(s) + 4 * np.eye(s[-1])).astype(make((1,)).dtype)
        yield Sample(*_lu_reference(x), make(b))


def _solve_reference(
    LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False
) -> Any:
    n = LU.shape[-1]
    lower, upper = np.tril(LU, -1) + np.eye(n), np.triu(LU)
    p = (np.arange(n)[:, None] == _order_reference(pivots, n)[..., None, :]).astype(LU.dtype)
    whole = p @ lower @ upper
    whole = np.conj(np.swapaxes(whole, -2, -1)) if adjoint else whole
    return np.linalg.solve(whole, B) if left else B @ np.linalg.inv(whole)


@composite(
    reference=_solve_reference,
    samples=_solvable,
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
)
def linalg_lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with ``A @ X == B`` for the matrix whose :func:`linalg.lu_factor` is given.

    ``left=False`` solves ``X @ A == B``, ``adjoint`` a system with ``A.mH``. Stacks broadcast.
    Raises ``RuntimeError`` for shapes that do not fit and pivots that are not int32.
    """
    n = square_shape(LU)[-1]
    matrix_shape(B)
    if pivots.dtype is not int32:
        raise DTypeError(
            f"linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32, got "
            f"{pivots.dtype}",
            fix="use the pivots of lu_factor",
        )
    if B.shape[-2 if left else -1] != n or tuple(pivots.shape) != (*LU.shape[:-2], n):
        raise ShapeError(
            f"LU {tuple(LU.shape)}, pivots {tuple(pivots.shape)} and B {tuple(B.shape)} do not "
            "make a system",
            fix="use (*, n, n), (*, n) and (*, n, k), with left=False (*, k, n)",
        )
    if not left:
        return mH(linalg_lu_solve(LU, pivots, mH(B), adjoint=not adjoint))
    order = _permutation(pivots, n, LU.dtype)
    if adjoint:
        half = linalg_solve_triangular(mH(LU), B, upper=False)
        half = linalg_solve_triangular(mH(LU), half, upper=True, unitriangular=True)
        return matmul(order, half)
    half = matmul(mH(order), B)
    half = linalg_solve_triangular(LU, half, upper=False, unitriangular=True)
    return linalg_solve_triangular(LU, half, upper=True)


@composite(
    reference=lambda self, LU_data, LU_pivots: _solve_reference(LU_data, LU_pivots, self),
    samples=lambda make: (Sample(s.args[2], *s.args[:2]) for s in _solvable(make)),
    dtypes=FLOATS,
    tolerance=conditioned,
)
def lu_solve(self: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """:func:`linalg.lu_solve` in its older form: the right-hand sides come first."""
    warn_once(
        "torch.lu_solve is deprecated in favor of torch.linalg.lu_solveand will be removed in a "
        "future PyTorch release.\nNote that torch.linalg.lu_solve has its arguments reversed.\n"
        "X = torch.lu_solve(B, LU, pivots)\nshould be replaced with\n"
        "X = torch.linalg.lu_solve(LU, pivots, B)"
    )
    return linalg_lu_solve(LU_data, LU_pivots, self)


@composite(
    name="lu",
    samples=proportions,
    dtypes=FLOATS,
    tolerance=conditioned,
)
def lu(self: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """``(LU, pivots)`` of :func:`linalg.lu_factor_ex`, with ``get_infos`` its ``info`` as well."""
    warn_once(
        "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex "
        "and will be removed in a future PyTorch release.\n"
        "LU, pivots = torch.lu(A, compute_pivots)\nshould be replaced with\n"
        "LU, pivots = torch.linalg.lu_factor(A, compute_pivots)\nand\n"
        "LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\n"
        "should be replaced with\n"
        "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)"
    )
    found = tuple(linalg_lu_factor_ex(self, pivot=pivot))
    return found if get_infos else found[:2]
