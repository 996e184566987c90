"""Eigenvalues and eigenvectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from coredispatch.ops.linalg.factorizations import (
    FLOATS,
    _numbered,
    lapack_dtype,
    square_shape,
    symmetric,
    symmetrised,
)
from coredispatch.ops.linalg.products import matmul, mH
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import conditioned, require_one_of
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive

__all__ = [
    "linalg_eig",
    "linalg_eigh",
    "linalg_eigvals",
    "linalg_eigvalsh",
]


def _eigh_shapes(self: Any, UPLO: str = "L") -> list[tuple[int, ...]]:
    require_one_of("UPLO", UPLO, ("L", "U"))
    sizes = square_shape(self)
    return [sizes[:-1], sizes]


def _eigh_determined(values: Any, vectors: Any) -> tuple[Any, ...]:
    """The values, the matrix that both make together, and the angles between vectors."""
    adjoint = np.conj(np.swapaxes(vectors, -2, -1))
    return values, (vectors * values[..., None, :]) @ adjoint, adjoint @ vectors


@primitive(
    cast="float32",
    out=_eigh_shapes,
    dtype=lambda self, *_: (lapack_dtype(self).to_real(), lapack_dtype(self)),
    reference=lambda A, UPLO="L": np.linalg.eigh(A, UPLO),
    samples=symmetric,
    dtypes=FLOATS,
    tolerance=replace(conditioned, determined=_eigh_determined),
    gradcheck=lambda *args: symmetrised(_eigh_invariants)(*args),
    namespace="linalg",
    method=False,
    fields=("eigenvalues", "eigenvectors"),
)
def linalg_eigh(A: Tensor, UPLO: str = "L") -> tuple[Tensor, Tensor]:
    """Eigenvalues (real, ascending) and eigenvectors (columns) of symmetric matrices.

    Only the triangle ``UPLO`` of ``A`` is read. The signs (phases) of the vectors are not
    determined, and a gradient that depends on them is wrong.
    """


@linalg_eigh.vjp
def _(grads, out):
    grad_values, grad_vectors = grads
    values, vectors = out
    if grad_vectors is None:
        # Values alone: no gap between them is divided by, they may repeat.
        return matmul(vectors * shape.unsqueeze(grad_values, -2), mH(vectors))
    grad_values = lazy.zeros_like(values) if grad_values is None else grad_values
    gaps = shape.unsqueeze(values, -2) - shape.unsqueeze(values, -1)
    gaps = gaps + lazy.eye(values.shape[-1], dtype=values.dtype, device=values.device)
    inner = matmul(mH(vectors), grad_vectors)
    # What turns a vector onto itself is a matter of its sign or phase.
    inner = inner - lazy.diag_embed(lazy.diagonal(inner, 0, -2, -1))
    inner = inner / gaps + lazy.diag_embed(grad_values.to_dtype(inner.dtype))
    return matmul(vectors, matmul(inner, mH(vectors)))


def _eigh_invariants(A: Any, UPLO: str = "L") -> Any:
    values, vectors = linalg_eigh(A, UPLO)
    return values, matmul(_numbered(vectors), mH(vectors))


@composite(
    cast="float32",
    name="linalg_eigvalsh",
    reference=lambda A, UPLO="L": np.linalg.eigvalsh(A, UPLO),
    samples=symmetric,
    dtypes=FLOATS,
    tolerance=conditioned,
    gradcheck=lambda *args: symmetrised(lazy.linalg_eigvalsh)(*args),
    namespace="linalg",
    method=False,
)
def linalg_eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of symmetric matrices, ascending."""
    return linalg_eigh(A, UPLO)[0]


def _eig_shapes(A: Any) -> list[tuple[int, ...]]:
    sizes = square_shape(A)
    return [sizes[:-1], sizes]


def _eig_invariants(A: Any) -> Any:
    values, vectors = linalg_eig(A)
    # Their order is not determined either; symmetric functions do not ask for it.
    weighted = vectors * shape.unsqueeze(values * values, -2)
    return lazy.sum(values * values * values, -1), lazy.linalg_solve(mH(vectors), mH(weighted))


def _apart(make: Any) -> Iterator[Sample]:
    """Matrices whose eigenvalues keep a distance."""
    for s in ((3, 3), (1, 1), (4, 4), (2, 3, 3)):
        spread = np.diag(3.0 * np.arange(1, s[-1] + 1))
        yield Sample((make(s) * 0.25 + spread).astype(make((1,)).dtype))


def _eig_determined(values: Any, vectors: Any) -> tuple[Any, ...]:
    """The matrix that values and vectors make together, and the lengths of vectors.

    Neither the order of the values nor the phase of a vector is determined.
    """
    adjoint = np.conj(np.swapaxes(vectors, -2, -1))
    try:
        made = np.linalg.solve(adjoint, np.conj(values)[..., :, None] * adjoint)
    except np.linalg.LinAlgError:  # vectors of which one depends on the others
        made = np.full_like(adjoint, np.nan)
    return np.conj(np.swapaxes(made, -2, -1)), np.linalg.norm(vectors, axis=-2)


def _eig_reference(A: Any) -> tuple[Any, ...]:
    return tuple(part.astype(np.complex128) for part in np.linalg.eig(A))


@primitive(
    cast="float32",
    out=_eig_shapes,
    dtype=lambda A: (lapack_dtype(A).to_complex(),) * 2,
    reference=_eig_reference,
    samples=_apart,
    dtypes=FLOATS,
    tolerance=replace(conditioned, determined=_eig_determined),
    gradcheck=_eig_invariants,
    namespace="linalg",
    method=False,
    fields=("eigenvalues", "eigenvectors"),
)
def linalg_eig(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors (columns of length 1) of square matrices, complex.

    Neither the order of the values nor the phases of the vectors are determined.
    """


@linalg_eig.vjp
def _(grads, out):
    # Boeddeker et al., "On the computation of complex-valued gradients", 2017, with the norms of
    # the vectors kept at 1 as in PyTorch.
    grad_values, grad_vectors = grads
    values, vectors = out
    if grad_vectors is None:
        weighted = shape.unsqueeze(grad_values, -1) * mH(vectors)
        return lazy.linalg_solve(mH(vectors), weighted)
    grad_values = lazy.zeros_like(values) if grad_values is None else grad_values
    gaps = lazy.conj(shape.unsqueeze(values, -2) - shape.unsqueeze(values, -1))
    gaps = gaps + lazy.eye(values.shape[-1], dtype=values.dtype, device=values.device)
    inner = matmul(mH(vectors), grad_vectors)
    lengths = lazy.real(lazy.diagonal(inner, 0, -2, -1)).to_dtype(values.dtype)
    inner = inner - matmul(mH(vectors), vectors * shape.unsqueeze(lengths, -2))
    inner = inner - lazy.diag_embed(lazy.diagonal(inner, 0, -2, -1))
    inner = inner / gaps + lazy.diag_embed(grad_values)
    return lazy.linalg_solve(mH(vectors), matmul(inner, mH(vectors)))


@composite(cast="float32", name="linalg_eigvals", namespace="linalg", method=False, dtypes=FLOATS,
           tolerance=conditioned)  # fmt: skip
def linalg_eigvals(A: Tensor) -> Tensor:
    """Eigenvalues of square matrices, complex, in no order."""
    return linalg_eig(A)[0]
