"""Orthogonal matrices as products of Householder reflections, as LAPACK stores them.

Golub and Van Loan, "Matrix computations", 4th edition, section 5.1: ``H = I - tau v v^H``, where v
is one at its own place, and zero before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.linalg.factorizations import (
    FLOATS,
    lapack_dtype,
    matrix_shape,
    tall_and_wide,
)
from coredispatch.ops.linalg.products import matmul, mH
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import conditioned
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import DTypeError, ShapeError

Shape = tuple[int, ...]


def _geqrf_shapes(self: Any) -> list[Shape]:
    *lead, m, n = matrix_shape(self)
    return [(*lead, m, n), (*lead, min(m, n))]


def _two(self: Any, *_: Any) -> tuple[DType, DType]:
    return lapack_dtype(self), lapack_dtype(self)


def _geqrf_reference(self: Any) -> tuple[Any, Any]:
    packed, tau = np.linalg.qr(self, mode="raw")
    return np.swapaxes(packed, -2, -1), tau


@composite(
    out=_geqrf_shapes,
    dtype=_two,
    reference=_geqrf_reference,
    samples=tall_and_wide,
    dtypes=FLOATS,
    tolerance=conditioned,
    differentiable=None,
    fields=("a", "tau"),
)
def geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    """``(a, tau)``: the QR decomposition as LAPACK packs it.

    R is the upper triangle of ``a``; below lie the vectors of the reflections whose product
    :func:`linalg.householder_product` forms. Not differentiable; see :func:`linalg.qr`.
    """
    lapack_dtype(self)
    *_, m, n = matrix_shape(self)
    x, taus = lazy.clone(self), []
    for i in range(min(m, n)):
        column = x[..., i:, i]
        alpha = column[..., :1]
        real = lazy.real(alpha) if x.dtype.is_complex else alpha
        length = lazy.sqrt(lazy.sum(lazy.square(lazy.abs(column)), -1, True))
        flat = lazy.sqrt(lazy.sum(lazy.square(lazy.abs(column[..., 1:])), -1, True))
        beta = -length * lazy.where(real < 0, -1.0, 1.0)
        # A column that is zero below, and real above, is reflected by nothing.
        trivial = lazy.eq(flat, 0)
        if x.dtype.is_complex:
            trivial = trivial & lazy.eq(lazy.imag(alpha), 0)
        beta = lazy.where(trivial, real, beta)
        safe = lazy.where(trivial, 1.0, beta)
        tau = lazy.where(trivial, 0.0, (beta - alpha) / safe)
        scale = lazy.where(trivial, 1.0, alpha - beta)
        v = lazy.cat([lazy.ones_like(alpha), column[..., 1:] / scale], -1)
        rest = x[..., i:, i + 1 :]
        inner = matmul(shape.unsqueeze(adjoint(v), -2), rest)
        rest = rest - shape.unsqueeze(adjoint(tau) * v, -1) * inner
        column = lazy.cat([beta.to_dtype(x.dtype), v[..., 1:]], -1)
        below = lazy.cat([x[..., i:, :i], shape.unsqueeze(column, -1), rest], -1)
        x = lazy.cat([x[..., :i, :], below], -2)
        taus.append(tau.to_dtype(x.dtype))
    lead = tuple(x.shape[:-2])
    tau = lazy.cat(taus, -1) if taus else lazy.zeros((*lead, 0), dtype=x.dtype, device=x.device)
    return geqrf.result_type((x, tau))


def _packed(make: Any) -> Iterator[Sample]:
    for s in ((4, 4), (5, 3), (3, 2), (1, 1), (2, 4, 3)):
        yield Sample(*_geqrf_reference(make(s)))


def _vector(packed: Any, i: int) -> Any:
    """The i-th reflection's vector, as a column of a matrix."""
    lower = packed[..., i + 1 :, i : i + 1]
    one = lazy.ones_like(packed[..., i : i + 1, i : i + 1])
    zeros = lazy.zeros_like(packed[..., :i, i : i + 1])
    return lazy.cat([zeros, one, lower], -2)


def _reflected(packed: Any, tau: Any, i: int, x: Any) -> Any:
    v = _vector(packed, i)
    return x - shape.unsqueeze(tau[..., i : i + 1], -1) * matmul(v, matmul(mH(v), x))


def _check(A: Any, tau: Any) -> None:
    lapack_dtype(A)
    if tau.dtype is not A.dtype:
        raise DTypeError(
            f"factors tau of {tau.dtype} for reflections of {A.dtype}", fix="use those of geqrf"
        )
    *lead, m, n = matrix_shape(A)
    k = tau.shape[-1] if tau.ndim else 0
    if m < n or k > n or tuple(tau.shape[:-1]) != tuple(lead):
        raise ShapeError(
            f"reflections {tuple(A.shape)} with tau {tuple(tau.shape)} make no orthogonal columns",
            fix="use (*, m, n) with m >= n, and (*, k) with k <= n",
        )


def _product_shape(A: Any, tau: Any) -> tuple[int, ...]:
    _check(A, tau)
    return matrix_shape(A)


def _product_reference(A: Any, tau: Any) -> Any:
    *lead, m, n = A.shape
    out = np.broadcast_to(np.eye(m, n, dtype=A.dtype), A.shape).copy()
    for at in np.ndindex(*lead):
        for i in reversed(range(tau.shape[-1])):
            v = np.concatenate([np.zeros(i), [1], A[at][i + 1 :, i]])
            out[at] -= tau[(*at, i)] * np.outer(v, np.conj(v) @ out[at])
    return out


_METADATA: dict[str, Any] = {
    "reference": _product_reference,
    "samples": _packed,
    "dtypes": FLOATS,
    "tolerance": conditioned,
}


@composite(
    out=_product_shape,
    dtype=lapack_dtype,
    **_METADATA,
    namespace="linalg",
    method=False,
)
def linalg_householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first n columns of ``H_1 H_2 ... H_k``, ``(*, m, n)``, of the reflections whose vectors
    stand below the diagonal of ``A`` and whose factors are ``tau``.
    """
    _check(A, tau)
    *lead, m, n = A.shape
    out = lazy.expand(lazy.eye(m, n, dtype=A.dtype, device=A.device), (*lead, m, n))
    for i in reversed(range(tau.shape[-1])):
        out = _reflected(A, tau, i, out)
    return out if tau.shape[-1] else lazy.clone(out)


@composite(**_METADATA)
def orgqr(self: Tensor, input2: Tensor) -> Tensor:
    """:func:`linalg.householder_product` under LAPACK's name."""
    return linalg_householder_product(self, input2)


def _applied(make: Any) -> Iterator[Sample]:
    packed, tau = _geqrf_reference(make((4, 3)))
    yield Sample(packed, tau, make((4, 2)))
    yield Sample(packed, tau, make((2, 4)), False)
    yield Sample(packed, tau, make((4, 2)), True, True)
    yield Sample(packed, tau, make((2, 4)), False, True)


def _ormqr_reference(self: Any, input2: Any, input3: Any, left: bool = True,
                     transpose: bool = False) -> Any:  # fmt: skip
    m, n = self.shape
    square = np.concatenate([self, np.zeros((m, m - n))], 1)
    q = _product_reference(square, input2)
    q = np.conj(q.T) if transpose else q
    return q @ input3 if left else input3 @ q


@composite(
    reference=_ormqr_reference,
    samples=_applied,
    dtypes=FLOATS,
    tolerance=conditioned,
)
def ormqr(
    self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """``Q @ input3``, or ``input3 @ Q`` unless ``left``, for the whole (m x m) product Q of the
    reflections ``self`` (vectors) and ``input2`` (factors); ``transpose`` takes ``Q.mH``.
    """
    lapack_dtype(self)
    *lead, rows, columns = matrix_shape(self)
    side = matrix_shape(input3)[-2 if left else -1]
    if tuple(input2.shape) != (*lead, min(side, columns)):
        raise ShapeError(
            f"factors {tuple(input2.shape)} do not belong to reflections {tuple(self.shape)} of a "
            f"matrix {tuple(input3.shape)}",
            fix=f"use factors of shape {(*lead, min(side, columns))}",
        )
    if side != rows:
        raise ShapeError(
            f"Q has {rows} rows and columns, the other matrix the shape {tuple(input3.shape)}",
            fix="use (*, m, n) with left=True, (*, n, m) with left=False",
        )
    if not left:
        return mH(ormqr(self, input2, mH(input3), True, not transpose))
    out, numbers = input3, range(input2.shape[-1])
    tau = adjoint(input2) if transpose else input2
    for i in numbers if transpose else reversed(numbers):
        out = _reflected(self, tau, i, out)
    return lazy.clone(out) if out is input3 else out  # without reflections
