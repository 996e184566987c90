"""A few extreme eigenvalues of a large symmetric matrix, by products with it alone.

Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block preconditioned
conjugate gradient method" (2001). The basis is kept orthonormal as in Stathopoulos and Wu, "A block
orthogonalization procedure with constant synchronization requirements" (2002).
"""

from __future__ import annotations

import math
from typing import Any

from coredispatch.frontend.modes import is_grad_enabled
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import ArgumentError, ShapeError

__all__ = ["lobpcg"]


def _op(name: str, *args: Any, **kwargs: Any) -> Any:
    return TABLE.operator(name)(*args, **kwargs)


def _orthonormal(S: Any, B: Any) -> Any:
    """Columns with the span of ``S`` that are orthonormal in the inner product of ``B``."""
    for _ in range(2):
        product = S if B is None else B @ S
        gram = S.mT @ product
        scale = gram.diagonal().clamp(min=0).sqrt()
        kept = scale > 0
        S, scale = S[:, kept], scale[kept]
        S = S / scale
        gram = gram[kept][:, kept] / (scale[:, None] * scale)
        values, vectors = _op("linalg_eigh", (gram + gram.mT) * 0.5)
        eps = 1e-14 if S.dtype.itemsize == 8 else 1e-6
        kept = values > values.max() * eps
        S = S @ (vectors[:, kept] / values[kept].sqrt())
    return S


def _solve(
    A: Any, k: int, B: Any, X: Any, iK: Any, niter: int, tol: float, largest: bool, tracker: Any
) -> tuple[Any, Any]:
    """Eigenvalues and vectors of one matrix."""
    X = _orthonormal(X, B)
    directions = None
    values = vectors = None
    for step in range(max(niter, 1)):
        projected = X.mT @ (A @ X)
        found, rotation = _op("linalg_eigh", (projected + projected.mT) * 0.5)
        order = _op("argsort", found, descending=largest)[: min(k, len(found))]
        values, vectors = found[order], X @ rotation[:, order]
        product = vectors if B is None else B @ vectors
        residual = A @ vectors - product * values
        size = _op("linalg_vector_norm", residual, dim=0)
        size = size / (_op("linalg_vector_norm", vectors, dim=0) * (values.abs() + 1))
        if tracker is not None:
            tracker(step, values, vectors, residual)
        if bool((size < tol).all()):
            break
        weighted = residual if iK is None else iK @ residual
        parts = [vectors, weighted] if directions is None else [vectors, weighted, directions]
        basis = _orthonormal(_op("cat", parts, 1), B)
        small = basis.mT @ (A @ basis)
        found, rotation = _op("linalg_eigh", (small + small.mT) * 0.5)
        order = _op("argsort", found, descending=largest)[: min(k, len(found))]
        new = basis @ rotation[:, order]
        directions = new - vectors @ (vectors.mT @ (new if B is None else B @ new))
        X = new
    return values, vectors


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """``(E, X)``: the ``k`` largest eigenvalues of ``A x = e B x``, ``(*, k)``, and their vectors
    ``(*, m, k)``.

    Args:
        A: symmetric matrices ``(*, m, m)``.
        k: how many (the columns of ``X``, or 1).
        B: symmetric positive definite, the identity by default.
        X: first guesses ``(*, m, n)``, random by default.
        n: the size of the random guess (``k``).
        iK: preconditioner ``(*, m, m)``, an approximation of the inverse of ``A``.
        niter: at most so many iterations (1000; -1: until all have converged).
        tol: the residual, relative to ``|e| + 1``, at which to stop (sqrt of the dtype's eps).
        largest: False for the smallest ones.
        method: ``"ortho"`` or ``"basic"``; both keep the basis orthonormal here.
        tracker: called with (iteration, E, X, residuals) in every iteration.
        ortho_iparams, ortho_fparams, ortho_bparams: accepted and not used.

    Where ``A`` or ``B`` requires grad, all eigenvalues are computed instead of iterating, as their
    derivatives are needed. Raises ``ValueError`` unless m is at least 3 times k.
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"square matrices are needed, got shape {tuple(A.shape)}", fix="A @ A.mT")
    if method not in (None, "ortho", "basic"):
        raise ArgumentError(f"method={method!r} is neither 'ortho' nor 'basic'", fix="'ortho'")
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if X is None else X.shape[-1]) if n is None else n
    if m < 3 * n:
        raise ArgumentError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than "
            f"3 x the number of requested eigenpairs (={n})",
            fix="use linalg.eigh",
        )
    tol = (1e-8 if A.dtype.itemsize == 8 else 1.2e-7**0.5) if tol is None else tol
    niter = 1000 if niter is None else niter
    niter = math.isqrt(2**31) if niter == -1 else niter
    largest = True if largest is None else largest
    lead = tuple(A.shape[:-2])
    if is_grad_enabled() and (A.requires_grad or (B is not None and B.requires_grad)):
        return _dense(A, B, k, largest)
    if X is None:
        X = _op("randn", (*lead, m, n), dtype=A.dtype, device=A.device)

    def flat(x: Any) -> Any:
        return (
            None
            if x is None
            else x.detach().expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:])
        )

    stacks = [flat(A), flat(B), flat(X), flat(iK)]
    found = []
    for i in range(stacks[0].shape[0]):
        a, b, x, ik = (None if s is None else s[i] for s in stacks)
        found.append(_solve(a, k, b, x, ik, niter, tol, largest, tracker))
    values = _op("stack", [e for e, _ in found]).reshape(*lead, -1)
    vectors = _op("stack", [v for _, v in found]).reshape(*lead, m, -1)
    return values, vectors


def _dense(A: Any, B: Any, k: int, largest: bool) -> tuple[Any, Any]:
    """The same through all eigenvalues, which has a derivative."""
    lower = None if B is None else _op("cholesky", B)
    if lower is not None:
        A = _op("linalg_solve", lower, A)
        A = _op("linalg_solve", lower, A.mT).mT
    values, vectors = _op("linalg_eigh", (A + A.mT) * 0.5)
    if lower is not None:
        vectors = _op("linalg_solve", lower.mT, vectors)
    if largest:
        return values[..., -k:].flip(-1), vectors[..., -k:].flip(-1)
    return values[..., :k], vectors[..., :k]
