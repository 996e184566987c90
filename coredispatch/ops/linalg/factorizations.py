"""Matrix decompositions: Cholesky, QR, singular values, eigenvalues of symmetric matrices.

Derivatives: Murray, "Differentiation of the Cholesky decomposition" (2016); Walter and Lehmann,
"Algorithmic differentiation of linear algebra functions" (2010); Giles, "An extended collection
of matrix derivative results" (2008); for wide QR and for complex matrices as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from coredispatch._warnings import warn_once
from coredispatch.ops.linalg.products import matmul, mH
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import conditioned, require_one_of
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import DType, complex64, complex128, float32, float64
from coredispatch.registry.model.errors import (
    ArgumentError,
    AutogradError,
    DTypeError,
    OpError,
    ShapeError,
)

__all__ = [
    "cholesky",
    "linalg_qr",
    "linalg_svd",
    "linalg_svdvals",
    "qr",
    "svd",
]

Shape = tuple[int, ...]
#: what LAPACK has routines for
FLOATS = (float32, float64, complex64, complex128)


def matrix_shape(x: Any) -> Shape:
    """The shape of a matrix or a stack of them; raises :class:`ShapeError` for anything less."""
    sizes = tuple(x.shape)
    if len(sizes) < 2:
        raise ShapeError(
            f"a matrix or a stack of them is needed, got shape {sizes}",
            fix="use at least 2 dimensions",
        )
    return sizes


def square_shape(x: Any, *_: Any) -> Shape:
    """Like :func:`matrix_shape`, for square matrices."""
    sizes = matrix_shape(x)
    if sizes[-1] != sizes[-2]:
        raise ShapeError(
            f"square matrices are needed, got shape {sizes}",
            fix="use matrices with as many rows as columns",
        )
    return sizes


def lapack_dtype(x: Any, *_: Any) -> DType:
    """The dtype of ``x``; raises :class:`DTypeError` for one LAPACK has no routines for."""
    dtype = DType.of(x.dtype)
    if dtype not in FLOATS:
        raise DTypeError(f"decompositions need one of {FLOATS}, got {dtype}", fix="use x.float()")
    return dtype


def positive_definite(make: Any) -> Iterator[Sample]:
    """``op(self)`` for symmetric positive definite matrices."""
    for s in ((4, 4), (1, 1), (5, 5), (2, 3, 3)):
        x = make(s)
        square = x @ np.conj(np.swapaxes(x, -2, -1))
        # Well away from singular, whatever the values are.
        shift = 2 + np.abs(square).max().astype(np.float64)
        yield Sample(square + (shift * np.eye(s[-1])).astype(x.dtype))


def symmetric(make: Any) -> Iterator[Sample]:
    """``op(self)`` for symmetric matrices."""
    for s in ((4, 4), (1, 1), (5, 5), (2, 3, 3)):
        x = make(s)
        yield Sample(x + np.conj(np.swapaxes(x, -2, -1)))


def tall_and_wide(make: Any) -> Iterator[Sample]:
    """``op(self)`` for matrices of every proportion."""
    for s in ((4, 4), (5, 3), (3, 5), (1, 1), (2, 4, 3)):
        yield Sample(make(s))


def symmetrised(function: Any) -> Any:
    """``function`` of the symmetric part: its derivative has meaning in every direction."""

    def checked(self: Any, *args: Any) -> Any:
        return function((self + mH(self)) * 0.5, *args)

    return checked


def _numbered(columns: Any) -> Any:
    """Columns times 1, 2, 3, ...: what tells them apart and leaves their phases to cancel."""
    number = lazy.arange(1, columns.shape[-1] + 1, dtype=columns.dtype, device=columns.device)
    return columns * number


def last_of_three(make: Any, factor: float) -> Any:
    """Three unit matrices, the last of them times ``factor``: the one that has no solution."""
    return np.stack([np.eye(3), np.eye(3), factor * np.eye(3)]).astype(make.dtype)


# ---- Cholesky -----------------------------------------------------------------------------------


@primitive(
    cast="float32",
    out=square_shape,
    dtype=lapack_dtype,
    reference=lambda self, upper=False: np.linalg.cholesky(self, upper=upper),
    samples=positive_definite,
    errors=lambda make: [(Sample(last_of_three(make, -1)), OpError)],
    dtypes=FLOATS,
    tolerance=conditioned,
    gradcheck=lambda *args: symmetrised(lazy.cholesky)(*args),
    namespace=("", "linalg"),
)
def cholesky(self: Tensor, upper: bool = False) -> Tensor:
    """Lower triangular L with ``L @ L.mH == self`` (``upper``: L.mH), for positive definite input.

    Only one triangle of ``self`` is read. Raises :class:`OpError` where it is not positive
    definite.
    """


@cholesky.vjp
def _(grad, out, upper):
    if upper:
        grad, out = mH(grad), mH(out)
    inner = lazy.tril(matmul(mH(out), grad))
    inner = inner + mH(lazy.tril(inner, -1))
    # L^-H (.) L^-1, and half of it: both triangles of a symmetric input move together.
    left = lazy.linalg_solve(mH(out), inner)
    return lazy.linalg_solve(mH(out), mH(left)) * 0.5


# ---- QR -----------------------------------------------------------------------------------------


def _qr_shapes(self: Any, mode: str = "reduced") -> list[Shape]:
    require_one_of("mode", mode, ("reduced", "complete", "r"))
    *lead, m, n = matrix_shape(self)
    k = m if mode == "complete" else min(m, n)
    return [(0,) if mode == "r" else (*lead, m, k), (*lead, k, n)]


def _qr_samples(make: Any) -> Iterator[Sample]:
    """Every mode; between them a tall and a wide matrix, and one as high as wide."""
    yield from tall_and_wide(make)
    for shape_, mode in (((5, 3), "complete"), ((2, 3, 5), "complete"), ((4, 3), "r")):
        yield Sample(make(shape_), mode)


def _qr_reference(A: Any, mode: Any = "reduced") -> tuple[Any, Any]:
    if mode == "r":
        return np.zeros(0, A.dtype), np.linalg.qr(A, "r")
    q, r = np.linalg.qr(A, mode)
    return q, r


def _qr_determined(q: Any, r: Any) -> tuple[Any, ...]:
    """Columns beyond those of the input are any that complete an orthonormal basis."""
    if q.ndim < 2 or q.shape[-1] <= r.shape[-1]:
        return q, r
    return q[..., : r.shape[-1]], r, np.conj(np.swapaxes(q, -2, -1)) @ q


def _qr_with_gradient(A: Any, mode: str = "reduced") -> Any:
    """QR in a mode that has a derivative."""
    derived = mode == "complete" and A.shape[-2] <= A.shape[-1]
    return linalg_qr(A, mode if derived else "reduced")


def _two(self: Any, *_: Any) -> tuple[DType, DType]:
    return lapack_dtype(self), lapack_dtype(self)


@primitive(
    cast="float32",
    out=_qr_shapes,
    dtype=_two,
    reference=_qr_reference,
    samples=_qr_samples,
    dtypes=FLOATS,
    tolerance=replace(conditioned, determined=_qr_determined),
    gradcheck=_qr_with_gradient,
    namespace="linalg",
    method=False,
    fields=("Q", "R"),
)
def linalg_qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """``(Q, R)`` with ``A == Q @ R``, Q orthonormal and R upper triangular.

    ``mode``: ``"reduced"`` has min(m, n) columns, ``"complete"`` m; ``"r"`` leaves Q empty.
    """


@linalg_qr.vjp
def _(grad, out, mode):
    grad_q, grad_r = grad
    q, r = out
    m, n = q.shape[-2] if mode != "r" else 0, r.shape[-1]
    if mode == "r":
        raise AutogradError("linalg.qr with mode='r' has no derivative", fix="use 'reduced'")
    if mode == "complete" and m > n:
        raise AutogradError(
            "linalg.qr with mode='complete' has no derivative for tall matrices",
            fix="use mode='reduced'",
        )
    if m >= n:
        return _qr_grad(grad_q, grad_r, q, r)
    # A = [X Y], R = [U V] with X = Q U and Y = Q V
    u, v = r[..., :m], r[..., m:]
    grad_u, grad_v = grad_r[..., :m], grad_r[..., m:]
    y = matmul(q, v)
    grad_q = grad_q + matmul(y, mH(grad_v))
    return lazy.cat([_qr_grad(grad_q, grad_u, q, u), matmul(q, grad_v)], -1)


def _qr_grad(grad_q: Any, grad_r: Any, q: Any, r: Any) -> Any:
    """Walter and Lehmann, for at least as many rows as columns."""
    grad_r = lazy.triu(grad_r)
    inner = matmul(r, mH(grad_r)) - matmul(mH(grad_q), q)
    below = lazy.tril(inner, -1)
    diagonal = lazy.diag_embed(_real(lazy.diagonal(inner, 0, -2, -1)))
    total = grad_q + matmul(q, below + mH(below) + diagonal.to_dtype(q.dtype))
    # total @ r^-H
    return mH(lazy.linalg_solve(r, mH(total)))


def _real(x: Any) -> Any:
    return lazy.real(x) if x.dtype.is_complex else x


@composite(
    reference=lambda self, some=True: tuple(np.linalg.qr(self, "reduced" if some else "complete")),
    samples=tall_and_wide,
    fields=("Q", "R"),
    tolerance=replace(conditioned, determined=_qr_determined),
    dtypes=FLOATS,
)
def qr(self: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    """``linalg.qr`` in its older form: reduced, or complete unless ``some``."""
    warn_once(
        "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future "
        "PyTorch release.\nThe boolean parameter 'some' has been replaced with a string parameter "
        "'mode'.\nQ, R = torch.qr(A, some)\nshould be replaced with\n"
        "Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')"
    )
    return qr.result_type(linalg_qr(self, "reduced" if some else "complete"))


# ---- singular values ----------------------------------------------------------------------------


def _svd_shapes(self: Any, full_matrices: bool = True) -> list[Shape]:
    *lead, m, n = matrix_shape(self)
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    return [(*lead, m, rows), (*lead, k), (*lead, columns, n)]


def _svd_dtypes(self: Any, *_: Any) -> tuple[DType, DType, DType]:
    dtype = lapack_dtype(self)
    return dtype, dtype.to_real(), dtype


def _svd_determined(u: Any, s: Any, v: Any) -> tuple[Any, ...]:
    """The values, the matrix that all make together, and the angles between vectors."""
    k = s.shape[-1]
    product = (u[..., :k] * s[..., None, :]) @ np.conj(np.swapaxes(v[..., :k], -2, -1))
    return s, product, *(np.conj(np.swapaxes(x, -2, -1)) @ x for x in (u, v))


@primitive(
    cast="float32",
    out=_svd_shapes,
    dtype=_svd_dtypes,
    reference=lambda A, full_matrices=True: np.linalg.svd(A, full_matrices),
    samples=tall_and_wide,
    dtypes=FLOATS,
    tolerance=replace(
        conditioned,
        determined=lambda u, s, vh: _svd_determined(u, s, np.conj(np.swapaxes(vh, -2, -1))),
    ),
    gradcheck=lambda *args: _svd_invariants(*args),
    namespace="linalg",
    method=False,
    fields=("U", "S", "Vh"),
)
def linalg_svd(
    A: Tensor,
    full_matrices: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """``(U, S, Vh)`` with ``A == U @ diag(S) @ Vh``, S real and descending.

    Without ``full_matrices`` U and Vh have only min(m, n) columns and rows. The signs (phases)
    of singular vectors are not determined, and a gradient that depends on them is wrong.
    """


_DRIVERS = ("gesvd", "gesvdj", "gesvda")


def _check_driver(A: Any, driver: Any) -> None:
    """Only CUDA has a choice of algorithms, and there it is a hint."""
    if driver is None:
        return
    if A.device.type == "cpu":
        raise ArgumentError(
            "the keyword argument driver= is only supported on CUDA", fix="leave driver away"
        )
    require_one_of("driver", driver, _DRIVERS)


@linalg_svd.overload
def _(
    A: Tensor, full_matrices: bool = True, *, driver: str | None
) -> tuple[Tensor, Tensor, Tensor]:
    _check_driver(A, driver)
    return linalg_svd(A, full_matrices)


@linalg_svd.vjp
def _(grads, out, full_matrices):
    grad_u, grad_s, grad_vh = grads
    u, s, vh = out
    m, n, k = u.shape[-2], vh.shape[-1], s.shape[-1]
    if full_matrices and m != n:
        u, vh = u[..., :k], vh[..., :k, :]
        grad_u = None if grad_u is None else grad_u[..., :k]
        grad_vh = None if grad_vh is None else grad_vh[..., :k, :]
    grad_s = lazy.zeros_like(s) if grad_s is None else grad_s
    if grad_u is None and grad_vh is None:
        # Values alone: no gap between them is divided by, they may repeat.
        return matmul(u * shape.unsqueeze(grad_s, -2), vh)
    grad_u = lazy.zeros_like(u) if grad_u is None else grad_u
    grad_vh = lazy.zeros_like(vh) if grad_vh is None else grad_vh
    row, column = shape.unsqueeze(s, -2), shape.unsqueeze(s, -1)
    # Differences of squares; any divisor will do for the diagonal, which is zero or a phase.
    gaps = row * row - column * column
    gaps = gaps + lazy.eye(k, dtype=s.dtype, device=s.device)
    in_u, in_v = matmul(mH(u), grad_u), matmul(vh, mH(grad_vh))
    skew_u, skew_v = in_u - mH(in_u), in_v - mH(in_v)
    inner = (skew_u / gaps) * row + column * (skew_v / gaps)
    if u.dtype.is_complex:
        phase = lazy.imag(lazy.diagonal(in_u, 0, -2, -1)) / s
        grad_s = lazy.complex(grad_s, phase)
    inner = inner + lazy.diag_embed(grad_s)
    total = matmul(u, matmul(inner, vh))
    if m > k:
        outside = grad_u - matmul(u, in_u)
        total = total + matmul(outside / row, vh)
    if n > k:
        outside = grad_vh - matmul(mH(in_v), vh)
        total = total + matmul(u, outside / column)
    return total


def _svd_invariants(A: Any, full_matrices: bool = True) -> Any:
    u, s, vh = linalg_svd(A, full_matrices)
    k = s.shape[-1]
    return s, matmul(_numbered(u[..., :k]), vh[..., :k, :])


@composite(
    cast="float32",
    name="linalg_svdvals",
    reference=lambda A: np.linalg.svd(A, compute_uv=False),
    samples=tall_and_wide,
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
)
def linalg_svdvals(A: Tensor) -> Tensor:
    """Singular values, descending."""
    return linalg_svd(A, False)[1]


@linalg_svdvals.overload
def _(A: Tensor, *, driver: str | None) -> Tensor:
    _check_driver(A, driver)
    return linalg_svdvals(A)


@composite(
    # Without vectors, of which a derivative needs what is determined: linalg.svd's has it.
    samples=lambda make: (Sample(*s.args, True, False) for s in tall_and_wide(make)),
    fields=("U", "S", "V"),
    dtypes=FLOATS,
    tolerance=replace(conditioned, determined=_svd_determined),
)
def svd(self: Tensor, some: bool = True, compute_uv: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """``(U, S, V)`` with ``self == U @ diag(S) @ V.mH``; ``linalg.svd`` gives ``V.mH``."""
    u, s, vh = linalg_svd(self, not some)
    if not compute_uv:
        return svd.result_type((lazy.zeros_like(u), s, lazy.zeros_like(mH(vh))))
    return svd.result_type((u, s, mH(vh)))


# ---- symmetric eigenvalues ----------------------------------------------------------------------
