"""Determinants, powers and the exponential of square matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.linalg.factorizations import FLOATS, lapack_dtype, linalg_svd, square_shape
from coredispatch.ops.linalg.products import matmul, mH
from coredispatch.ops.linalg.systems import invertible, linalg_inv, linalg_solve
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.inspection import all_true, elements, greatest
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import conditioned, same
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import float32, float64
from coredispatch.registry.model.errors import ArgumentError

__all__ = ["det", "linalg_slogdet", "logdet", "matrix_exp", "matrix_power"]


@primitive(
    out=lambda A: [square_shape(A)[:-2]] * 2,
    dtype=lambda A: (lapack_dtype(A), lapack_dtype(A).to_real()),
    reference=lambda A: tuple(np.linalg.slogdet(A)),
    samples=invertible,
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace=("", "linalg"),
    method=True,
    alias=("slogdet",),
    fields=("sign", "logabsdet"),
)
def linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor]:
    """Sign (or phase) and logarithm of the magnitude of the determinant; (0, -inf) if singular."""


@linalg_slogdet.vjp
def _(grad, out0, A):
    grad_sign, grad_log = grad
    factor = grad_log
    if A.dtype.is_complex:
        # A change of phase is imaginary in sign / sign.
        turn = lazy.imag(lazy.conj(out0) * grad_sign)
        factor = lazy.complex(grad_log, -turn)
        factor = lazy.conj(factor)
    return mH(linalg_inv(A)) * shape.unsqueeze(shape.unsqueeze(factor, -1), -1)


@composite(
    reference=np.linalg.det,
    out=lambda self: square_shape(self)[:-2],
    dtype=lapack_dtype,
    samples=invertible,
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace=("", "linalg"),
)
def det(self: Tensor) -> Tensor:
    """Determinant of square matrices."""
    lapack_dtype(self)
    sign, log = linalg_slogdet(self)
    return sign * lazy.exp(log)


@det.vjp
def _(grad, self):
    return det_backward(grad, self)


@composite(
    reference=lambda grad_output, self: (
        np.expand_dims(grad_output * np.conj(np.linalg.det(self)), (-2, -1))
        * np.conj(np.swapaxes(np.linalg.inv(self), -2, -1))
    ),
    out=lambda grad_output, self: tuple(self.shape),
    dtype=lambda grad_output, self: self.dtype,
    samples=lambda make: (Sample(make(x.shape[:-2]), x) for (x,) in _args(invertible(make))),
    dtypes=FLOATS,
    tolerance=conditioned,
    unbroadcast=False,
    namespace=(),
)
def det_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Gradient of :func:`det`; of singular matrices through their singular values."""
    out = det(self)
    factor = shape.unsqueeze(shape.unsqueeze(grad_output, -1), -1)
    if all_true(lazy.ne(out, 0)):
        scale = shape.unsqueeze(shape.unsqueeze(lazy.conj(out), -1), -1)
        return factor * scale * mH(linalg_inv(self))
    return factor * mH(_adjugate(self))


def _adjugate(x: Any) -> Any:
    """The matrix that ``det(x) * inv(x)`` is for a regular x, through the singular values."""
    u, s, vh = linalg_svd(x, False)
    n = s.shape[-1]
    unit = lazy.eye(n, dtype=lazy.arange(1).dtype, device=x.device).ne(0)
    rows = shape.expand(shape.unsqueeze(s, -2), (*s.shape, n))
    others = lazy.prod(lazy.masked_fill(rows, unit, 1), -1)
    sign, _ = linalg_slogdet(matmul(u, vh))
    phase = shape.unsqueeze(shape.unsqueeze(sign, -1), -1)
    return matmul(mH(vh) * shape.unsqueeze(others, -2), mH(u)) * phase


@composite(
    reference=lambda self: np.log(np.linalg.det(self)),
    dtypes=(float32, float64),
    samples=lambda make: (Sample(x @ np.swapaxes(x, -2, -1)) for (x,) in _args(invertible(make))),
    tolerance=conditioned,
)
def logdet(self: Tensor) -> Tensor:
    """Logarithm of the determinant; NaN where that is negative, -inf where it is 0.

    Of a complex matrix the principal value, which is complex.
    """
    sign, log = linalg_slogdet(self)
    if self.dtype.is_complex:
        return log + lazy.log(sign)
    return lazy.where(lazy.lt(sign, 0), lazy.full_like(log, math.nan), log)


def _args(samples: Iterator[Sample]) -> Iterator[tuple[Any, ...]]:
    for sample in samples:
        yield sample.args


# ---- functions of matrices ----------------------------------------------------------------------


@composite(
    reference=lambda self, n: np.linalg.matrix_power(self, n),
    samples=lambda make: (
        Sample(x, n) for (x,) in _args(invertible(make)) for n in (1, 2, 5, -1, -2)
    ),
    dtypes=FLOATS,
    tolerance=conditioned,
    namespace=("", "linalg"),
)
def matrix_power(self: Tensor, n: int) -> Tensor:
    """Product of ``n`` copies of a square matrix, of its inverse for negative ``n``."""
    sizes = square_shape(self)
    if n < 0:
        return matrix_power(linalg_inv(self), -n)
    if n == 0:
        unit = lazy.eye(sizes[-1], dtype=self.dtype, device=self.device)
        return lazy.copy(self, unit)
    power: Any = self
    out: Any = None
    while n:
        if n & 1:
            out = power if out is None else matmul(out, power)
        n >>= 1
        if n:
            power = matmul(power, power)
    return out if out is not self else self.clone()


# Coefficients of the Pade approximant of order 13 (Higham, "The scaling and squaring method for
# the matrix exponential revisited", 2005), good up to a 1-norm of 5.37.
_PADE = (
    64764752532480000,
    32382376266240000,
    7771770303897600,
    1187353796428800,
    129060195264000,
    10559470521600,
    670442572800,
    33522128640,
    1323241920,
    40840800,
    960960,
    16380,
    182,
    1,
)


@composite(
    out=square_shape,
    dtype=same,
    samples=lambda make: (Sample(make(s)) for s in ((1, 1), (4, 4), (2, 3, 3))),
    dtypes=FLOATS,
    takes="float+complex",
    tolerance=conditioned,
    namespace=("", "linalg"),
)
def matrix_exp(self: Tensor) -> Tensor:
    """The exponential of square matrices, by scaling, a Pade approximant and squaring."""
    n = square_shape(self)[-1]
    if self.numel() == 0:
        return self.clone()
    if self.dtype.is_floating_point and self.dtype.itemsize == 2:
        return narrow(matrix_exp(wide(self)), self)
    largest = float(greatest(lazy.sum(lazy.abs(self.detach()), -2)))
    if not math.isfinite(largest):
        raise ArgumentError(
            "matrix_exp needs finite elements, and the matrix has NaN or infinite ones",
            fix="replace them, for example with nan_to_num",
        )
    squarings = max(0, math.ceil(math.log2(largest / 5.37))) if largest > 0 else 0
    x = self * 0.5**squarings
    unit = lazy.eye(n, dtype=self.dtype, device=self.device)
    x2 = matmul(x, x)
    x4 = matmul(x2, x2)
    x6 = matmul(x4, x2)
    c = [value / _PADE[0] for value in _PADE]
    odd = matmul(x6, x6 * c[13] + x4 * c[11] + x2 * c[9])
    odd = matmul(x, odd + x6 * c[7] + x4 * c[5] + x2 * c[3] + unit * c[1])
    even = matmul(x6, x6 * c[12] + x4 * c[10] + x2 * c[8])
    even = even + x6 * c[6] + x4 * c[4] + x2 * c[2] + unit * c[0]
    out = linalg_solve(even - odd, even + odd)
    for _ in range(squarings):
        out = matmul(out, out)
    return out


@matrix_exp.vjp
def _(grad, self):
    """The upper right block of the exponential of a block triangular matrix.

    Mathias, A chain rule for matrix functions and applications, SIAM Journal on Matrix Analysis
    and Applications 17, 1996.
    """
    if not self.numel():
        return grad
    # The derivative is linear in ``grad``: what is large there costs no digits of the matrix.
    size = lazy.amax(elements(lazy.abs(grad.detach())))
    scale = lazy.where(size > 0, size, lazy.ones_like(size))
    n, adjoined = self.shape[-1], mH(self)
    upper = lazy.cat([adjoined, grad / scale], -1)
    lower = lazy.cat([lazy.zeros_like(adjoined), adjoined], -1)
    return matrix_exp(lazy.cat([upper, lower], -2))[..., :n, n:] * scale
