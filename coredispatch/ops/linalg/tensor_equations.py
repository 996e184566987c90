"""Linear equations between tensors, and other names of the namespace ``linalg``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch._warnings import warn_once
from coredispatch.ops.linalg.factorizations import FLOATS
from coredispatch.ops.linalg.systems import linalg_inv, linalg_pinv, linalg_solve
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.casting import floating
from coredispatch.ops.support.rules import broadcast_shapes, conditioned, exact, normalize_dim, ulp
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, OpError, ShapeError


def _regular(make: Any, sizes: tuple[int, ...], rows: int) -> Any:
    x = make((rows, rows)) + 4 * np.eye(rows)
    return x.astype(make((1,)).dtype).reshape(sizes)


@composite(
    reference=lambda A, ind=2: np.linalg.tensorinv(A, ind),
    samples=lambda make: (
        Sample(_regular(make, (4, 6, 8, 3), 24)),
        Sample(_regular(make, (6, 2, 3), 6), 1),
    ),
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
)
def linalg_tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of :func:`tensordot` with ``A`` over its last dims: ``A.shape[ind:] +
    A.shape[:ind]``.

    Raises ``RuntimeError`` unless ``ind`` is positive and the products of the first ``ind`` sizes
    and of the others are equal.
    """
    if ind <= 0:
        raise OpError(f"Expected a strictly positive integer for 'ind', got {ind}", fix="ind=2")
    if ind > A.ndim:
        raise ShapeError(
            f"ind={ind} for a tensor of {A.ndim} dimensions", fix=f"use ind up to {A.ndim}"
        )
    first, last = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    if math.prod(first) != math.prod(last):
        raise ShapeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {math.prod(last)} != {math.prod(first)}",
            fix="use another ind",
        )
    matrix = shape.reshape(A, (math.prod(last), math.prod(first)))
    return shape.reshape(linalg_inv(matrix), (*last, *first))


@composite(
    reference=lambda A, B, dims=None: np.linalg.tensorsolve(A, B, dims),
    samples=lambda make: (
        Sample(_regular(make, (6, 4, 2, 3, 4), 24), make((6, 4))),
        Sample(np.moveaxis(_regular(make, (6, 2, 3), 6), 1, 2), make((6,)), (1,)),
    ),
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace="linalg",
    method=False,
)
def linalg_tensorsolve(A: Tensor, B: Tensor, dims: IntList | None = None) -> Tensor:
    """X with ``tensordot(A, X, X.ndim) == B``, after the ``dims`` of ``A`` have moved to its end.

    Raises ``RuntimeError`` unless what remains of ``A.shape`` multiplies to ``B.numel()``.
    """
    if dims is not None:
        moved = [normalize_dim(d, A.ndim) for d in dims]
        A = lazy.movedim(A, moved, list(range(A.ndim - len(moved), A.ndim)))
    rest = tuple(A.shape[B.ndim :])
    if math.prod(rest) != B.numel():
        raise ShapeError(
            f"Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"other.numel(), but got {math.prod(rest)} != {B.numel()}",
            fix="use other dims",
        )
    matrix = shape.reshape(A, (B.numel(), math.prod(rest)))
    return shape.reshape(linalg_solve(matrix, shape.reshape(B, (-1,))), rest)


def _vander_reference(x: Any, N: int | None = None) -> Any:
    x = x.astype(np.int64) if x.dtype.kind in "biu" else x
    return np.stack([x**k for k in range(x.shape[-1] if N is None else N)], -1)


@composite(
    reference=_vander_reference,
    samples=lambda make: (
        Sample(make((4,))),
        Sample(make((3,)), 5),
        Sample(make((2, 3))),
        Sample(make((2, 3)), 2),
    ),
    tolerance=ulp(32),
    namespace="linalg",
    method=False,
)
def linalg_vander(x: Tensor, N: int | None = None) -> Tensor:
    """``x**k`` for k = 0 ... N - 1 (the length of ``x``) as the last dimension: ``(*, n, N)``.

    Integers give int64. Raises ``RuntimeError`` for a 0-dim ``x`` and for N < 2.
    """
    if x.ndim == 0:
        raise ShapeError("linalg.vander: Expected dim(x) >= 1", fix="use x[None]")
    count = x.shape[-1] if N is None else N
    if count <= 1 and N is not None:
        raise ArgumentError(f"N must be greater than 1, got {N}", fix="use N >= 2")
    repeated = lazy.expand(shape.unsqueeze(x, -1), (*x.shape, max(count - 1, 0)))
    powers = lazy.cumprod(repeated, -1)
    ones = lazy.ones((*x.shape, 1), dtype=powers.dtype, device=x.device)
    return lazy.cat([ones, powers], -1)[..., :count]


def _planes(make: Any) -> Iterator[Sample]:
    yield Sample(make((4, 4)))
    yield Sample(make((2, 3, 5)), offset=1)
    yield Sample(make((2, 3, 5)), offset=-1, dim1=0, dim2=2)


@composite(
    reference=lambda A, *, offset=0, dim1=-2, dim2=-1: np.diagonal(A, offset, dim1, dim2),
    samples=_planes,
    tolerance=exact,
    namespace="linalg",
    method=False,
    view=True,
)
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """:func:`diagonal` of the last two dims, a view."""
    return lazy.diagonal(A, offset, dim1, dim2)


@composite(
    reference=lambda self, rcond=1e-15: np.linalg.pinv(self, rcond),
    samples=lambda make: (Sample(make(s)) for s in ((4, 4), (5, 3), (2, 3, 4))),
    takes=FLOATS,
    tolerance=conditioned,
)
def pinverse(self: Tensor, rcond: float = 1e-15) -> Tensor:
    """:func:`linalg.pinv` in its older form."""
    return linalg_pinv(self, rcond)


def _triangular(make: Any) -> Iterator[Sample]:
    a = (np.triu(make((4, 4))) + 3 * np.eye(4)).astype(make((1,)).dtype)
    yield Sample(make((4, 2)), a)
    yield Sample(make((4, 2)), a, True, True)
    yield Sample(make((2, 4, 1)), np.swapaxes(a, 0, 1).copy(), False)


def _triangular_reference(
    self: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    half = np.triu(A) if upper else np.tril(A)
    if unitriangular:
        half = half - half * np.eye(A.shape[-1]) + np.eye(A.shape[-1])
    half = np.swapaxes(half, -2, -1) if transpose else half
    lead = np.broadcast_shapes(self.shape[:-2], A.shape[:-2])
    return np.linalg.solve(half, self), np.broadcast_to(A, (*lead, *A.shape[-2:]))


@composite(
    reference=_triangular_reference,
    samples=_triangular,
    dtypes=FLOATS,
    tolerance=conditioned,
    fields=("solution", "cloned_coefficient"),
)
def triangular_solve(
    self: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:
    """``(X, copy of A)`` with ``A @ X == self`` (``transpose``: ``A.mT``), one triangle of ``A``
    read: :func:`linalg.solve_triangular` in its older form. Both results have all dimensions that
    the two arguments broadcast to.
    """
    warn_once(
        "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangularand will "
        "be removed in a future PyTorch release.\ntorch.linalg.solve_triangular has its arguments "
        "reversed and does not return a copy of one of the inputs.\n"
        "X = torch.triangular_solve(B, A).solution\nshould be replaced with\n"
        "X = torch.linalg.solve_triangular(A, B)."
    )
    lead = broadcast_shapes([tuple(self.shape[:-2]), tuple(A.shape[:-2])])
    A = lazy.expand(A, (*lead, *A.shape[-2:])) if tuple(A.shape[:-2]) != lead else A
    matrix = lazy.transpose(A, -2, -1) if transpose else A
    found = lazy.linalg_solve_triangular(
        matrix, floating(self), upper=upper != transpose, unitriangular=unitriangular
    )
    return triangular_solve.result_type((found, lazy.clone(A)))
