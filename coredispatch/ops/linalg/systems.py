"""Linear systems, inverses, determinants and matrix functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.linalg.eigenvalues import linalg_eigh
from coredispatch.ops.linalg.factorizations import (
    FLOATS,
    lapack_dtype,
    last_of_three,
    linalg_svd,
    linalg_svdvals,
    matrix_shape,
    square_shape,
)
from coredispatch.ops.linalg.products import matmul, mH
from coredispatch.ops.linalg.vector_norms import smallest_that_counts
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.inspection import all_true
from coredispatch.ops.support.rules import broadcast_shapes, conditioned, promote
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import int64
from coredispatch.registry.model.errors import OpError, ShapeError

__all__ = [
    "cholesky_inverse",
    "cholesky_solve",
    "inverse",
    "linalg_inv",
    "linalg_lstsq",
    "linalg_pinv",
    "linalg_solve",
    "linalg_solve_triangular",
]

Shape = tuple[int, ...]


def _well_conditioned(make: Any) -> Iterator[Any]:
    for s in ((4, 4), (1, 1), (5, 5), (2, 3, 3)):
        yield make(s) + 4 * np.eye(s[-1])


def invertible(make: Any) -> Iterator[Sample]:
    for x in _well_conditioned(make):
        yield Sample(x.astype(make((1,)).dtype))
    yield Sample(_stack(make, 3))  # as many matrices as each has rows


def _stack(make: Any, n: int) -> Any:
    """``n`` invertible matrices of ``n`` rows: with them one matrix has the shape of n vectors."""
    return (make((n, n, n)) + 4 * np.eye(n)).astype(make((1,)).dtype)


# ---- solve --------------------------------------------------------------------------------------


def is_vector_stack(a: Any, b: Any) -> bool:
    """Whether ``b`` holds one vector for each matrix of ``a``, as PyTorch sees it."""
    return len(b.shape) == 1 or (
        len(b.shape) == len(a.shape) - 1 and tuple(b.shape) == tuple(a.shape[:-1])
    )


def _solve_shape(A: Any, B: Any, left: bool = True) -> Shape:
    *lead_a, n, _ = square_shape(A)
    if is_vector_stack(A, B):
        if B.shape[-1] != n:
            raise ShapeError(
                f"{n} equations do not fit {B.shape[-1]} right-hand sides",
                fix="give one right-hand side for each equation",
            )
        if not left and n != 1:
            raise ShapeError(
                f"no X of a vector B of {n} elements solves X A = B",
                fix="use left=True, or give B as a matrix of one row",
            )
        return (*broadcast_shapes([tuple(lead_a), tuple(B.shape[:-1])]), n)
    *lead_b, rows, columns = matrix_shape(B)
    if (rows if left else columns) != n:
        raise ShapeError(
            f"shapes {tuple(A.shape)} and {tuple(B.shape)} do not make a system",
            fix="use (*, n, n) with (*, n) or (*, n, k)",
        )
    return (*broadcast_shapes([tuple(lead_a), tuple(lead_b)]), rows, columns)


def systems(make: Any) -> Iterator[Sample]:
    dtype = make((1,)).dtype
    for x in _well_conditioned(make):
        yield Sample(x.astype(dtype), make((*x.shape[:-1], 2)))
    first = next(_well_conditioned(make)).astype(dtype)
    yield Sample(first, make((4,)))
    yield Sample(first, make((3, 4, 2)))
    yield Sample(first, make((2, 4)), left=False)


def _solve_reference(A: Any, B: Any, *, left: bool = True) -> Any:
    if is_vector_stack(A, B):
        return np.linalg.solve(A, B[..., None])[..., 0]
    if left:
        return np.linalg.solve(A, B)
    return np.swapaxes(np.linalg.solve(np.swapaxes(A, -2, -1), np.swapaxes(B, -2, -1)), -2, -1)


@primitive(
    cast="float32",
    out=_solve_shape,
    dtype=promote,
    reference=_solve_reference,
    samples=systems,
    errors=lambda make: [
        (Sample(make((2, 3)), make((3,))), ShapeError),
        (Sample(last_of_three(make, 0), make((3, 2))), OpError),
    ],
    takes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
)
def linalg_solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with ``A @ X == B`` (``left=False``: ``X @ A == B``); stacks broadcast.

    ``B`` is a matrix, a vector, or one vector for each matrix of ``A``. Raises :class:`OpError`
    for a singular ``A``.
    """


@linalg_solve.vjp
def _(grad, out, A, B_shape, left):
    vector = len(B_shape) == 1 or (
        len(B_shape) == A.ndim - 1 and tuple(B_shape) == tuple(A.shape[:-1])
    )
    if vector:
        grad, out = shape.unsqueeze(grad, -1), shape.unsqueeze(out, -1)
    of_b = linalg_solve(mH(A), grad, left=left or vector)
    of_a = -matmul(of_b, mH(out)) if left or vector else -matmul(mH(out), of_b)
    return of_a, shape.squeeze(of_b, -1) if vector else of_b


def _triangular_reference(
    A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    half = np.triu(A, int(unitriangular)) if upper else np.tril(A, -int(unitriangular))
    half = half + np.eye(A.shape[-1]) if unitriangular else half
    stack = (*A.shape[: max(A.ndim - B.ndim, 0)], *B.shape)
    return _solve_reference(half, np.broadcast_to(B, stack), left=left)


def _triangular_systems(make: Any) -> Iterator[Sample]:
    first = list(systems(make))[:2]
    for upper in (True, False):
        for s in first:
            yield Sample(*s.args, upper=upper)
        square = first[0].args[0]
        yield Sample(square, make((2, 4)), upper=upper, left=False)
        yield Sample(square, make((2, 4)), upper=upper, left=False, unitriangular=True)
        yield Sample(square, make((4, 3)), upper=upper, unitriangular=True)
        yield Sample(_stack(make, 3), make((3, 3)), upper=upper, left=upper)


@composite(
    cast="float32",
    name="linalg_solve_triangular",
    reference=_triangular_reference,
    samples=_triangular_systems,
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
)
def linalg_solve_triangular(
    A: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """Like ``solve`` with only one triangle of ``A`` read (``unitriangular``: ones diagonal).

    ``B`` is a matrix or a stack of them, whatever the shape of ``A``: never a vector.
    """
    matrix_shape(B)
    if A.ndim > B.ndim:  # solve would take one matrix for the vectors of a stack
        B = shape.expand(B, (*A.shape[: A.ndim - B.ndim], *B.shape))
    half = lazy.triu(A, int(unitriangular)) if upper else lazy.tril(A, -int(unitriangular))
    if unitriangular:
        half = half + lazy.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return linalg_solve(half, B, left=left)


def _factored_reference(factor: Any, upper: bool) -> Any:
    """The matrix whose Cholesky factor is the triangle of ``factor``."""
    lower = np.conj(np.swapaxes(np.triu(factor), -2, -1)) if upper else np.tril(factor)
    return lower @ np.conj(np.swapaxes(lower, -2, -1))


@composite(
    cast="float32",
    reference=lambda self, input2, upper=False: np.linalg.solve(
        _factored_reference(input2, upper), self
    ),
    samples=lambda make: (
        Sample(make((4, 2)), np.tril(make((4, 4))) + 3 * np.eye(4, dtype=make((1,)).dtype)),
        Sample(make((3, 3)), np.tril(_stack(make, 3))),
    ),
    dtypes=FLOATS,
    tolerance=conditioned,
    unbroadcast=True,
)
def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """X with ``L @ L.mH @ X == self`` for the Cholesky factor ``input2``."""
    lower = mH(input2) if upper else input2
    half = linalg_solve_triangular(lower, self, upper=False)
    return linalg_solve_triangular(mH(lower), half, upper=True)


def _factor_grad(of_matrix: Any, factor: Any, upper: bool) -> Any:
    """The gradient of a Cholesky factor from that of the matrix, which is Hermitian."""
    if upper:
        return lazy.triu(matmul(lazy.triu(factor), of_matrix))
    return lazy.tril(matmul(of_matrix, lazy.tril(factor)))


def _solved_factor_grad(grad: Any, out: Any, input2: Any, upper: bool) -> Any:
    outer = matmul(cholesky_solve(grad, input2, upper), mH(out))
    return _factor_grad(-(outer + mH(outer)), input2, upper)


cholesky_solve.vjp(
    self=lambda grad, input2, upper: cholesky_solve(grad, input2, upper),
    input2=_solved_factor_grad,
)


@composite(
    cast="float32",
    reference=lambda self, upper=False: np.linalg.inv(_factored_reference(self, upper)),
    samples=lambda make: (
        Sample(np.tril(make((4, 4))) + 3 * np.eye(4, dtype=make((1,)).dtype)),
        Sample(np.triu(make((3, 3))) + 3 * np.eye(3, dtype=make((1,)).dtype), True),
    ),
    dtypes=FLOATS,
    tolerance=conditioned,
)
def cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    """Inverse of the matrix whose Cholesky factor ``self`` is."""
    return cholesky_solve(
        lazy.eye(self.shape[-1], dtype=self.dtype, device=self.device), self, upper
    )


@cholesky_inverse.vjp
def _(grad, out, self, upper):
    inner = matmul(matmul(out, grad + mH(grad)), out)
    return _factor_grad(-inner, self, upper)


# ---- inverses -----------------------------------------------------------------------------------


@composite(
    cast="float32",
    name="linalg_inv",
    out=square_shape,
    dtype=lapack_dtype,
    reference=lambda A: np.linalg.inv(A),
    samples=invertible,
    errors=lambda make: [(Sample(last_of_three(make, 0)), OpError)],
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
)
def linalg_inv(A: Tensor) -> Tensor:
    """Inverse of square matrices. Raises :class:`OpError` for a singular one."""
    identity = lazy.eye(square_shape(A)[-1], dtype=A.dtype, device=A.device)
    # As many dimensions as A: a stack of n matrices would take one of (n, n) for its n vectors.
    return linalg_solve(A, shape.expand(identity, A.shape))


@linalg_inv.vjp
def _(grad, out):
    transposed = mH(out)
    return -matmul(transposed, matmul(grad, transposed))


@composite(reference=np.linalg.inv, samples=invertible, dtypes=FLOATS, tolerance=conditioned)
def inverse(self: Tensor) -> Tensor:
    """Inverse of square matrices; another name of ``linalg.inv``."""
    return linalg_inv(self)


def _pinv_reference(
    A: Any, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Any:
    rtol = rtol if rcond is None else rcond
    if rtol is None:
        rtol = 0.0 if atol else max(A.shape[-2:]) * np.finfo(A.dtype).eps
    if hermitian:
        values, u = np.linalg.eigh(A)
        vh = np.conj(np.swapaxes(u, -2, -1))
    else:
        u, values, vh = np.linalg.svd(A, full_matrices=False)
    size = np.abs(values)
    kept = size > np.maximum(size.max(-1, keepdims=True) * rtol, atol or 0.0)
    factor = np.where(kept, 1 / np.where(kept, values, 1), 0)
    left, right = (np.conj(np.swapaxes(x, -2, -1)) for x in (vh, u))
    return (left * factor[..., None, :]) @ right


@composite(
    cast="float32",
    name="linalg_pinv",
    reference=_pinv_reference,
    samples=lambda make: (Sample(make(s)) for s in ((4, 4), (5, 3), (3, 5), (2, 4, 3))),
    takes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
    alias=(),
)
def linalg_pinv(
    A: Tensor,
    rcond: float | None = None,
    hermitian: bool = False,
    *,
    atol: float | None = None,
    rtol: float | None = None,
) -> Tensor:
    """Moore-Penrose inverse; singular values up to ``rcond`` times the greatest count as zero.

    ``rcond``, also called ``rtol``, is max(m, n) * eps where neither it nor ``atol`` is given.
    ``atol`` is a limit of its own; the greater of the two counts. Each may be a tensor of one
    number for each matrix. The gradient takes what is cut off as zero.
    """
    return _pseudo_inverse(A, rtol if rcond is None else rcond, hermitian, atol)


@linalg_pinv.overload
def _(
    A: Tensor,
    rcond: Tensor | Scalar | None = None,
    hermitian: bool = False,
    *,
    atol: Tensor | Scalar | None = None,
    rtol: Tensor | Scalar | None = None,
) -> Tensor:
    return _pseudo_inverse(A, rtol if rcond is None else rcond, hermitian, atol)


def _pseudo_inverse(A: Any, rtol: Any, hermitian: bool, atol: Any) -> Any:
    *_, m, n = matrix_shape(A)
    if hermitian:
        values, u = linalg_eigh(A)
        vh = mH(u)
    else:
        u, values, vh = linalg_svd(A, False)
    size = lazy.abs(values)
    if values.shape[-1]:
        default = max(m, n) * float(np.finfo(A.dtype.to_real().name).eps)
        small = lazy.le(size, smallest_that_counts(size, rtol, atol, default))
    else:
        small = size > 0
    reciprocal = lazy.masked_fill(lazy.reciprocal(values), small, 0)
    return matmul(mH(vh) * shape.unsqueeze(reciprocal, -2), mH(u))


@linalg_pinv.vjp
def _(grad, out, A):
    # Golub and Pereyra, "The differentiation of pseudo-inverses" (1973)
    ph, gh = mH(out), mH(grad)
    first = -matmul(ph, matmul(grad, ph))
    gram = matmul(gh, matmul(out, ph))
    second = gram - matmul(A, matmul(out, gram))
    gram = matmul(ph, matmul(out, gh))
    third = gram - matmul(matmul(gram, out), A)
    return first + second + third


# The derivative of Golub and Pereyra moves among matrices of one rank: what is cut off counts as
# zero, for the derivative as for the result. Of what is cut and not zero it is no difference.
_AT_RANK_1 = [[-0.25, 0.25], [0.25, 0.0]]
linalg_pinv.edge("a singular value of 0 stays 0", [[2.0, 0.0], [0.0, 0.0]], gradient=_AT_RANK_1)
linalg_pinv.edge("what is cut counts as 0", [[2.0, 0.0], [0.0, 1.0]], atol=1.5, gradient=_AT_RANK_1)
linalg_pinv.edge("what is cut counts as 0", [[2.0, 0.0], [0.0, 1.0]], 0.5, gradient=_AT_RANK_1)


@composite(
    cast="float32",
    name="linalg_lstsq",
    namespace="linalg",
    method=False,
    dtypes=FLOATS,
    fields=("solution", "residuals", "rank", "singular_values"),
    samples=lambda make: (
        Sample(
            make((6, 3)) + 2 * np.eye(6, 3, dtype=make((1,)).dtype), make((6, 2)), driver="gelsd"
        ),
        Sample(make((4, 4)) + 4 * np.eye(4, dtype=make((1,)).dtype), make((4, 3))),
    ),
    tolerance=conditioned,
)
def linalg_lstsq(
    A: Tensor,
    B: Tensor,
    rcond: float | None = None,
    *,
    driver: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``(solution, residuals, rank, singular_values)`` of the least-squares problem ``A X ~ B``.

    The solution of least norm, through the singular values whatever ``driver`` says: one of
    ``"gelsy"`` (None), ``"gelsd"``, ``"gelss"``, ``"gels"``. What comes with it is what that LAPACK
    routine gives: residuals (sums of squares of each column) of all but gelsy, where there are more
    equations than unknowns and the rank is full; the rank of all but gels; singular values of gelsd
    and gelss; anything else is empty. ``B`` holds matrices, or one vector for each matrix of ``A``.
    """
    name = "gelsy" if driver is None else driver
    if name not in DRIVERS:
        raise OpError(
            f"torch.linalg.lstsq: parameter `driver` should be one of ({', '.join(DRIVERS)}), got "
            f"{driver!r}",
            fix="driver=None",
        )
    vector = is_vector_stack(A, B) and A.ndim > 1
    right = shape.unsqueeze(B, -1) if vector else B
    if matrix_shape(A)[-2] != matrix_shape(right)[-2]:
        raise ShapeError(
            f"A {tuple(A.shape)} and B {tuple(B.shape)} have different numbers of equations",
            fix="use (*, m, n) with (*, m, k) or (*, m)",
        )
    solution = matmul(linalg_pinv(A, rcond), right)
    m, n = A.shape[-2:]
    empty = lazy.zeros((0,), dtype=A.dtype.to_real(), device=A.device)
    rank = values = residuals = None
    if name in ("gelsd", "gelss"):
        values = linalg_svdvals(A.detach())
    full = lazy.linalg_matrix_rank(A.detach(), rtol=rcond)
    if name != "gels":
        rank = full
    if m > n and name != "gelsy" and (name == "gels" or all_true(lazy.eq(full, n))):
        residuals = lazy.sum(lazy.square(lazy.abs(matmul(A, solution) - right)), -2)
    solution = shape.squeeze(solution, -1) if vector else solution
    return linalg_lstsq.result_type(
        (
            solution,
            lazy.clone(empty) if residuals is None else residuals,
            lazy.zeros((0,), dtype=int64, device=A.device) if rank is None else rank,
            empty if values is None else values,
        )
    )


#: LAPACK's routines for least squares, by how they factor: QR, pivoted QR, SVD twice
DRIVERS = ("gels", "gelsy", "gelsd", "gelss")
