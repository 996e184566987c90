"""Complex numbers: parts, conjugates, and building them from real tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops.elementwise import arithmetic, comparison
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.rules import (
    broadcast,
    exact,
    promote_float,
    real_like,
    same,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import Sample, tensor_pairs, unary
from coredispatch.registry import DType, composite, primitive
from coredispatch.registry.model.dtypes import complex64, complex128, float32, float64
from coredispatch.registry.model.errors import DTypeError, ShapeError
from coredispatch.registry.model.value import dtype_of


def _component(x: Any) -> DType:
    return DType.of(x.dtype).to_complex()


def _of_parts(first: Any, second: Any) -> DType:
    a, b = DType.of(first.dtype), DType.of(second.dtype)
    if a is not b:
        raise DTypeError(
            f"both parts must have one floating dtype, got {a} and {b}", fix="convert one of them"
        )
    return a.to_complex()


def _unpacked_shape(self: Any) -> tuple[int, ...]:
    return (*self.shape, 2)


def _packed_shape(self: Any) -> tuple[int, ...]:
    if not self.shape or self.shape[-1] != 2:
        raise ShapeError(
            f"the last dimension must hold (real, imaginary) and have size 2, got {self.shape}",
            fix="stack the parts with cd.stack((re, im), -1)",
        )
    return tuple(self.shape[:-1])


@primitive(
    out=_unpacked_shape,
    dtype=real_like,
    takes=(complex64, complex128),
    samples=unary,
    tolerance=exact,
    view=True,
)
def view_as_real(self: Tensor) -> Tensor:
    """A complex tensor as a real view with a last dimension of size 2: (real, imaginary)."""


@view_as_real.vjp
def _(grad):
    return view_as_complex(lazy.contiguous(grad))


@primitive(
    out=_packed_shape,
    dtype=_component,
    samples=lambda make: (Sample(make((*s, 2))) for s in ((), (0,), (17,), (3, 5))),
    takes=(float32, float64),
    tolerance=exact,
    view=True,
)
def view_as_complex(self: Tensor) -> Tensor:
    """A float32 or float64 tensor whose last dimension of size 2 holds (real, imaginary), as a
    complex view. That dimension must be contiguous. Raises ``ShapeError`` otherwise.
    """


@view_as_complex.vjp
def _(grad):
    return view_as_real(grad)


@composite(
    out=same_shape, dtype=real_like, reference=np.real, samples=unary, tolerance=exact, view="maybe"
)
def real(self: Tensor) -> Tensor:
    """The real part, a view; a real tensor is returned as it is."""
    return view_as_real(self)[..., 0] if dtype_of(self).is_complex else self


@composite(
    out=same_shape,
    dtype=real_like,
    reference=np.imag,
    samples=unary,
    takes=(complex64, complex128),
    tolerance=exact,
    view=True,
)
def imag(self: Tensor) -> Tensor:
    """The imaginary part, a view. Raises ``DTypeError`` for real tensors."""
    return view_as_real(self)[..., 1]


@composite(
    out=same_shape, dtype=same, reference=np.conj, samples=unary, tolerance=exact, view="maybe"
)
def conj(self: Tensor) -> Tensor:
    """The complex conjugate; a real tensor is returned as it is."""
    return conj_physical(self) if dtype_of(self).is_complex else self


@composite(out=same_shape, dtype=same, samples=unary, tolerance=exact, view="maybe")
def resolve_conj(self: Tensor) -> Tensor:
    """The tensor itself: conjugation is never deferred here."""
    return self


@composite(out=same_shape, dtype=same, reference=np.conj, samples=unary, tolerance=exact)
def conj_physical(self: Tensor) -> Tensor:
    """The complex conjugate, always in new memory."""
    if not dtype_of(self).is_complex:
        return lazy.clone(self)
    return complex_(real(self), arithmetic.neg(imag(self)))


@conj_physical.vjp
def _(grad):
    return conj(grad)


@composite(
    name="complex",
    out=broadcast,
    dtype=_of_parts,
    samples=tensor_pairs,
    takes=(float32, float64),
    tolerance=exact,
    method=False,
)
def complex_(real: Tensor, imag: Tensor) -> Tensor:
    """``real + 1j * imag`` from two floating tensors of one dtype (float32 or float64)."""
    common(promote_float, real, imag)  # refuses what is no tensor
    _of_parts(real, imag)
    return view_as_complex(lazy.stack(lazy.broadcast_tensors([real, imag]), -1))


@composite(
    out=broadcast,
    dtype=_of_parts,
    samples=tensor_pairs,
    takes=(float32, float64),
    tolerance=ulp(4),
    unbroadcast=True,
    method=False,
)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from magnitude and angle in radians: ``abs * (cos + 1j * sin)``."""
    _of_parts(abs, angle)
    cosine = arithmetic.mul(abs, lazy.cos(angle))
    return complex_(cosine, arithmetic.mul(abs, lazy.sin(angle)))


def _polar_angle_grad(grad: Any, abs: Any, angle: Any) -> Any:
    turned = arithmetic.sub(
        arithmetic.mul(lazy.imag(grad), lazy.cos(angle)),
        arithmetic.mul(lazy.real(grad), lazy.sin(angle)),
    )
    return arithmetic.mul(abs, turned)


polar.vjp(
    abs=lambda grad, angle: arithmetic.add(
        arithmetic.mul(lazy.real(grad), lazy.cos(angle)),
        arithmetic.mul(lazy.imag(grad), lazy.sin(angle)),
    ),
    angle=_polar_angle_grad,
)


def _angle_reference(self: Any) -> Any:
    if self.dtype.kind == "c":
        return np.angle(self)
    return np.where(np.isnan(self), np.nan, np.where(self < 0, np.pi, 0.0))


@composite(
    out=same_shape,
    dtype=lambda self: promote_float(self).to_real(),
    reference=_angle_reference,
    samples=unary,
    tolerance=ulp(2),
    smooth=False,
)
def angle(self: Tensor) -> Tensor:
    """The angle in radians; real tensors give 0, or pi where negative, and NaN stays NaN."""
    if dtype_of(self).is_complex:
        return lazy.atan2(imag(self), real(self))
    dtype = promote_float(self)
    x = self if dtype_of(self) is dtype else lazy.to_dtype(self, dtype)
    return comparison.where(comparison.lt(x, 0), np.pi, comparison.where(comparison.isnan(x), x, 0))


@angle.vjp
def _(grad, self):
    if not dtype_of(self).is_complex:
        return lazy.zeros_like(grad)
    # d angle = Im(conj(z) dz) / |z|**2, and 0 at the origin.
    square = arithmetic.square(lazy.abs(self))
    inverse = comparison.where(comparison.eq(square, 0), 0, lazy.div(grad, square))
    return arithmetic.mul(arithmetic.mul(self, inverse), 1j)


angle.edge("0 on the axis", [0.0, -1.0, 1.0], gradient=[0.0, 0.0, 0.0])


@composite(out=same_shape, samples=unary, differentiable=False, tolerance=exact)
def isreal(self: Tensor) -> Tensor:
    """True where the imaginary part is zero; everywhere for real tensors."""
    if dtype_of(self).is_complex:
        return comparison.eq(imag(self), 0)
    return comparison.logical_or(comparison.eq(self, self), True)
