"""Singular values and principal components of matrices of low rank, by random projection.

Halko, Martinsson and Tropp, "Finding structure with randomness: probabilistic algorithms for
constructing approximate matrix decompositions" (2009): algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import ArgumentError, OpError

__all__ = ["pca_lowrank", "svd_lowrank"]


def _op(name: str, *args: Any, **kwargs: Any) -> Any:
    return TABLE.operator(name)(*args, **kwargs)


def _adjoint(x: Any) -> Any:
    return x.mH


def _basis(A: Any, q: int, niter: int, M: Any) -> Any:
    """Orthonormal columns that nearly span the range of ``A - M``."""
    random = _op("randn", (A.shape[-1], q), dtype=A.dtype, device=A.device)

    def times(matrix: Any, offset: Any, x: Any) -> Any:
        product = matrix @ x
        return product if offset is None else product - offset @ x

    back = None if M is None else _adjoint(M)
    q_matrix = _op("linalg_qr", times(A, M, random))[0]
    for _ in range(niter):
        q_matrix = _op("linalg_qr", times(_adjoint(A), back, q_matrix))[0]
        q_matrix = _op("linalg_qr", times(A, M, q_matrix))[0]
    return q_matrix


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """``(U, S, V)`` with ``A - M ~ U @ diag(S) @ V.mH``: ``(*, m, q)``, ``(*, q)``, ``(*, n, q)``.

    Args:
        A: matrices ``(*, m, n)`` of a rank of about ``q`` or less.
        q: how many singular values (6).
        niter: rounds of subspace iteration (2); more of them make it more exact.
        M: what is subtracted, a matrix that broadcasts.

    The projection is random: seed it with ``cd.manual_seed``.
    """
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    m, n = A.shape[-2:]
    M = None if M is None else M.expand(A.shape)
    flat = m < n
    if flat:
        A, M = _adjoint(A), None if M is None else _adjoint(M)
    basis = _basis(A, q, niter, M)
    small = _adjoint(basis) @ A
    if M is not None:
        small = small - _adjoint(basis) @ M
    u, s, vh = _op("linalg_svd", small, False)
    u, v = basis @ u, _adjoint(vh)
    return (v, s, u) if flat else (u, s, v)


def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """``(U, S, V)`` of :func:`svd_lowrank` of a data matrix ``(*, m, n)`` of m samples.

    Columns of V are the principal directions, ``A @ V`` the components. ``center`` subtracts the
    mean of each column first; ``q`` is min(6, m, n) by default.
    Raises ``ValueError`` for a ``q`` beyond min(m, n) or a negative ``niter``.
    """
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ArgumentError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}",
            fix="use a smaller q",
        )
    if niter < 0:
        raise ArgumentError(f"niter(={niter}) must be non-negative integer", fix="niter=2")
    if not A.dtype.is_floating_point and not A.dtype.is_complex:
        raise OpError(f"pca_lowrank needs floating point numbers, got {A.dtype}", fix="A.float()")
    if center:
        A = A - A.mean(-2, keepdim=True)
    return svd_lowrank(A, q, niter)
