"""Products of matrices and vectors. ``matmul`` is the primitive; the rest is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.number_first import accept_factors_first
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import broadcast_shapes, promote
from coredispatch.ops.support.rules import dot as dot_tolerance
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import ALL_DTYPES, bool_, uint16, uint32, uint64
from coredispatch.registry.model.errors import ShapeError

__all__ = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "dot",
    "inner",
    "linalg_vecdot",
    "matmul",
    "mm",
    "mv",
    "outer",
    "vdot",
]

Shape = tuple[int, ...]

#: products of booleans and of the wide unsigned integers are not defined, as in PyTorch
NUMBERS = tuple(d for d in ALL_DTYPES if d not in (bool_, uint16, uint32, uint64))

# ---- rules and samples --------------------------------------------------------------------------


def multiplied(self: Any, other: Any, *_: Any) -> Shape:
    """Shape rule of ``matmul``: matrices multiply, leading dimensions broadcast."""
    a, b = tuple(self.shape), tuple(other.shape)
    if not a or not b:
        raise ShapeError(
            f"shapes {a} and {b} cannot be multiplied: both need a dimension",
            fix="use * for 0-dim tensors",
        )
    left, right = a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)
    if left[-1] != right[-2]:
        raise ShapeError(
            f"shapes {a} and {b} cannot be multiplied: the first has {left[-1]} columns and the "
            f"second {right[-2]} rows",
            fix=f"give the second {left[-1]} rows, or transpose one of them with .mT",
        )
    lead = broadcast_shapes([left[:-2], right[:-2]])
    rows = (left[-2],) if len(a) > 1 else ()
    columns = (right[-1],) if len(b) > 1 else ()
    return (*lead, *rows, *columns)


def _exactly(ndim_a: int, ndim_b: int) -> Any:
    names = {1: "a vector", 2: "a matrix", 3: "a stack of matrices"}

    def rule(self: Any, other: Any, *_: Any) -> Shape:
        a, b = tuple(self.shape), tuple(other.shape)
        if len(a) != ndim_a or len(b) != ndim_b:
            raise ShapeError(
                f"{names[ndim_a]} and {names[ndim_b]} are needed, got shapes {a} and {b}",
                fix="use matmul, which broadcasts",
            )
        if ndim_a == 3 and a[0] != b[0]:
            raise ShapeError(
                f"a stack of {a[0]} matrices does not fit one of {b[0]}",
                fix="use matmul to broadcast",
            )
        return multiplied(self, other)

    return rule


def products(*pairs: tuple[Shape, Shape]) -> Any:
    def sampler(make: Any) -> Iterator[Sample]:
        for a, b in pairs:
            yield Sample(make(a), make(b))

    return sampler


MATRICES = (
    ((4, 4), (4, 4)),
    ((3, 5), (5, 2)),
    ((1, 1), (1, 1)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((17, 257), (257, 5)),
)
STACKS = (((2, 4, 4), (2, 4, 4)), ((3, 2, 5), (3, 5, 4)), ((0, 2, 3), (0, 3, 2)))
BROADCAST = (
    ((2, 1, 3, 4), (5, 4, 2)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
)
VECTORS = (((5,), (5,)), ((0,), (0,)), ((257,), (257,)))
MATRIX_VECTOR = (((3, 5), (5,)), ((0, 3), (3,)), ((2, 0), (0,)))


def _mismatch(make: Any) -> list[Any]:
    return [(Sample(make((2, 3)), make((2, 3))), ShapeError)]


def mH(x: Any) -> Any:
    """The conjugate transpose of matrices with two dimensions or more."""
    x = lazy.transpose(x, -2, -1)
    return lazy.conj(x) if x.dtype.is_complex else x


# ---- matmul -------------------------------------------------------------------------------------


@primitive(
    out=multiplied,
    dtype=promote,
    reference=np.matmul,
    samples=products(*MATRICES, *STACKS, *BROADCAST, *VECTORS, *MATRIX_VECTOR, ((3,), (3, 4))),
    errors=_mismatch,
    cast="lower",
    tolerance=dot_tolerance,
    namespace=("", "linalg"),
    dtypes=NUMBERS,
)
def matmul(self: Tensor, other: Tensor) -> Tensor:
    """Matrix product; leading dimensions broadcast, vectors are rows on the left, columns right.

    Integers wrap around. float16 and bfloat16 add up in float32. Raises :class:`ShapeError`.
    """


def _matmul_rows(grad: Any, self_shape: Any, other_shape: Any) -> Any:
    """``grad`` with the dimensions that a vector does not have."""
    rows = shape.unsqueeze(grad, -2) if len(self_shape) == 1 else grad
    return shape.unsqueeze(rows, -1) if len(other_shape) == 1 else rows


def _matmul_self_grad(grad: Any, self_shape: Any, other: Any) -> Any:
    if len(self_shape) == 1 and other.ndim == 1:
        return grad * _conj(other)
    rows = _matmul_rows(grad, self_shape, other.shape)
    right = shape.unsqueeze(other, -1) if other.ndim == 1 else other
    out = matmul(rows, mH(right))
    return shape.squeeze(out, -2) if len(self_shape) == 1 else out


def _matmul_other_grad(grad: Any, self: Any, other_shape: Any) -> Any:
    if self.ndim == 1 and len(other_shape) == 1:
        return grad * _conj(self)
    rows = _matmul_rows(grad, self.shape, other_shape)
    left = shape.unsqueeze(self, 0) if self.ndim == 1 else self
    if left.ndim > 2 and len(other_shape) <= 2:
        # One product over all stacked rows instead of one per matrix and a sum.
        stacked = shape.flatten(left, 0, -2)
        out = matmul(mH(stacked), shape.flatten(rows, 0, -2))
    else:
        out = matmul(mH(left), rows)
    return shape.squeeze(out, -1) if len(other_shape) == 1 else out


matmul.vjp(self=_matmul_self_grad, other=_matmul_other_grad)


def _conj(x: Any) -> Any:
    return lazy.conj(x) if x.dtype.is_complex else x


@composite(
    out=_exactly(2, 2),
    dtype=promote,
    reference=np.matmul,
    samples=products(*MATRICES),
    errors=_mismatch,
    cast="lower",
    tolerance=dot_tolerance,
    dtypes=NUMBERS,
)
def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices; nothing broadcasts."""
    _exactly(2, 2)(self, mat2)
    return matmul(self, mat2)


@composite(
    out=_exactly(3, 3),
    dtype=promote,
    reference=np.matmul,
    samples=products(*STACKS),
    cast="lower",
    tolerance=dot_tolerance,
    dtypes=NUMBERS,
)
def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """Products of two stacks, (b, n, k) and (b, k, m), of equally many matrices."""
    _exactly(3, 3)(self, mat2)
    return matmul(self, mat2)


@composite(
    out=_exactly(2, 1),
    dtype=promote,
    reference=np.matmul,
    samples=products(*MATRIX_VECTOR),
    cast="lower",
    tolerance=dot_tolerance,
    dtypes=NUMBERS,
)
def mv(self: Tensor, vec: Tensor) -> Tensor:
    """Product of a matrix and a vector."""
    _exactly(2, 1)(self, vec)
    return matmul(self, vec)


@composite(
    out=_exactly(1, 1),
    dtype=promote,
    reference=lambda self, tensor: self @ tensor,
    samples=products(*VECTORS),
    cast="widest_accelerated",
    tolerance=dot_tolerance,
    dtypes=NUMBERS,
)
def dot(self: Tensor, tensor: Tensor) -> Tensor:
    """Sum of the products of two vectors' elements, 0-dim; no conjugation."""
    _exactly(1, 1)(self, tensor)
    return matmul(self, tensor)


@composite(
    reference=lambda self, other: np.conj(self) @ other,
    samples=products(*VECTORS),
    tolerance=dot_tolerance,
    cast="widest_accelerated",
)
def vdot(self: Tensor, other: Tensor) -> Tensor:
    """Like :func:`dot` with the first vector conjugated."""
    return dot(_conj(self), other)


def _inner_reference(self: Any, other: Any) -> Any:
    if self.ndim == 0 or other.ndim == 0:
        return self * other
    # Not np.inner, which drops the NaN of NaN times 0 where an array has one element.
    left, right = list(range(self.ndim)), list(range(self.ndim, self.ndim + other.ndim))
    right[-1] = left[-1]
    return np.einsum(self, left, other, right, left[:-1] + right[:-1])


@composite(
    reference=_inner_reference,
    samples=products(((5,), (5,)), ((3, 5), (2, 5)), ((2, 3, 5), (5,))),
    tolerance=dot_tolerance,
)
def inner(self: Tensor, other: Tensor) -> Tensor:
    """Products summed over the last dimension of both, for all pairs of the other indices."""
    if self.ndim == 0 or other.ndim == 0:
        return self * other
    if self.shape[-1] != other.shape[-1]:
        raise ShapeError(
            f"the last dimensions have {self.shape[-1]} and {other.shape[-1]} elements",
            fix="make them equal",
        )
    return lazy.tensordot(self, other, ([self.ndim - 1], [other.ndim - 1]))


@composite(
    takes="float+complex",
    cast="lower",
    name="linalg_vecdot",
    reference=lambda x, y, *, dim=-1: np.sum(np.conj(x) * y, axis=dim),
    samples=products(((5,), (5,)), ((3, 5), (3, 5)), ((2, 1, 5), (3, 5))),
    tolerance=dot_tolerance,
    namespace="linalg",
    method=False,
)
def linalg_vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum of ``conj(x) * y`` along ``dim``; both broadcast."""
    return lazy.sum(_conj(x) * y, dim)


def _outer_shape(self: Any, vec2: Any) -> Shape:
    if len(self.shape) != 1 or len(vec2.shape) != 1:
        raise ShapeError(
            f"two vectors are needed, got {tuple(self.shape)} and {tuple(vec2.shape)}",
            fix="reshape them to vectors, or use matmul",
        )
    return (self.shape[0], vec2.shape[0])


@composite(
    out=_outer_shape,
    dtype=promote,
    reference=np.outer,
    samples=products(((5,), (5,)), ((3,), (257,)), ((0,), (3,))),
    alias=("ger",),
)
def outer(self: Tensor, vec2: Tensor) -> Tensor:
    """All products of an element of ``self`` (rows) and one of ``vec2`` (columns)."""
    _outer_shape(self, vec2)
    return shape.unsqueeze(self, -1) * vec2


# ---- sums of products ---------------------------------------------------------------------------


def _scaled(x: Any, factor: Any) -> Any:
    return x if type(factor) is int and factor == 1 else x * factor


def _plus_reference(self: Any, product: Any, beta: Any, alpha: Any, off: bool = True) -> Any:
    """``beta * self + alpha * product``; what is switched off does not matter (NaN)."""
    product = np.zeros_like(product) if off and alpha == 0 else alpha * product
    return product if beta == 0 else beta * self + product


def _plus(self: Any, product: Any, beta: Any, alpha: Any, off: bool = True) -> Any:
    """``beta * self + alpha * product``; what beta = 0 multiplies does not matter (NaN).

    Its callers give half precision as float32, so that the sum is rounded once: what two large
    terms leave would else have no correct digit. ``off`` says the same of alpha = 0, as BLAS does
    of a product of matrices; PyTorch multiplies products of batches and outer products by it.
    """
    product = lazy.zeros_like(product) if off and alpha == 0 else _scaled(product, alpha)
    if beta == 0:
        return product
    if broadcast_shapes([tuple(self.shape), tuple(product.shape)]) != tuple(product.shape):
        raise ShapeError(
            f"{tuple(self.shape)} does not expand to {tuple(product.shape)}",
            fix="give self the shape of the product, or one that expands to it",
        )
    return _scaled(self, beta) + product


def _addmm_shape(self: Any, mat1: Any, mat2: Any, *_: Any) -> Shape:
    out = _exactly(2, 2)(mat1, mat2)
    if broadcast_shapes([tuple(self.shape), out]) != out:
        raise ShapeError(
            f"{tuple(self.shape)} does not expand to {out}",
            fix="give self the shape of the product, or one that expands to it",
        )
    return out


@composite(
    out=_addmm_shape,
    dtype=promote,
    reference=lambda self, mat1, mat2, *, beta=1, alpha=1: _plus_reference(
        self, mat1 @ mat2, beta, alpha
    ),
    samples=lambda make: (
        Sample(make((2,)), make((3, 5)), make((5, 2))),
        Sample(make((4, 4)), make((4, 4)), make((4, 4)), beta=2, alpha=3),
        Sample(make((3, 1)), make((3, 5)), make((5, 2)), alpha=2),
    ),
    cast="lower",
    tolerance=dot_tolerance,
    inplace=True,
    dtypes=NUMBERS,
    fits=("beta", "alpha"),
)
def addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """``beta * self + alpha * (mat1 @ mat2)``; ``self`` broadcasts to the product."""
    self, mat1, mat2 = common(promote, self, mat1, mat2)
    product = mm(wide(mat1), wide(mat2))
    return narrow(_plus(wide(self), product, beta, alpha), self)


addmm.vjp(
    self=lambda grad, beta: _scaled(grad, adjoint(beta)),
    mat1=lambda grad, mat2, alpha: _scaled(matmul(grad, mH(mat2)), adjoint(alpha)),
    mat2=lambda grad, mat1, alpha: _scaled(matmul(mH(mat1), grad), adjoint(alpha)),
)


@composite(
    dtype=promote,
    reference=lambda self, mat, vec, *, beta=1, alpha=1: _plus_reference(
        self, mat @ vec, beta, alpha
    ),
    samples=lambda make: (
        Sample(make((3,)), make((3, 5)), make((5,))),
        Sample(make((3,)), make((3, 5)), make((5,)), beta=2, alpha=3),
    ),
    cast="lower",
    tolerance=dot_tolerance,
    inplace=True,
    dtypes=NUMBERS,
    fits=("beta", "alpha"),
)
def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """``beta * self + alpha * (mat @ vec)``."""
    self, mat, vec = common(promote, self, mat, vec)
    product = mv(wide(mat), wide(vec))
    return narrow(_plus(wide(self), product, beta, alpha), self)


@composite(
    dtype=promote,
    reference=lambda self, vec1, vec2, *, beta=1, alpha=1: _plus_reference(
        self, np.outer(vec1, vec2), beta, alpha, False
    ),
    samples=lambda make: (Sample(make((3, 5)), make((3,)), make((5,)), beta=2, alpha=3),),
    inplace=True,
    dtypes=NUMBERS,
    fits=("beta", "alpha"),
    cast="lower_accelerated",
)
def addr(
    self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """``beta * self + alpha * outer(vec1, vec2)``."""
    self, vec1, vec2 = common(promote, self, vec1, vec2)
    product = outer(wide(vec1), wide(vec2))
    return narrow(_plus(wide(self), product, beta, alpha, False), self)


@composite(
    dtype=promote,
    reference=lambda self, batch1, batch2, *, beta=1, alpha=1: _plus_reference(
        self, batch1 @ batch2, beta, alpha, False
    ),
    samples=lambda make: (
        Sample(make((2, 3, 4)), make((2, 3, 5)), make((2, 5, 4))),
        Sample(make((3, 1)), make((2, 3, 5)), make((2, 5, 4)), beta=2, alpha=3),
    ),
    cast="lower",
    tolerance=dot_tolerance,
    inplace=True,
    dtypes=NUMBERS,
    fits=("beta", "alpha"),
)
def baddbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """``beta * self + alpha * bmm(batch1, batch2)``."""
    self, batch1, batch2 = common(promote, self, batch1, batch2)
    product = bmm(wide(batch1), wide(batch2))
    return narrow(_plus(wide(self), product, beta, alpha, False), self)


@composite(
    dtype=promote,
    reference=lambda self, batch1, batch2, *, beta=1, alpha=1: _plus_reference(
        self, (batch1 @ batch2).sum(0), beta, alpha
    ),
    samples=lambda make: (Sample(make((3, 4)), make((2, 3, 5)), make((2, 5, 4)), beta=2),),
    cast="lower",
    tolerance=dot_tolerance,
    inplace=True,
    dtypes=NUMBERS,
    fits=("beta", "alpha"),
)
def addbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """``beta * self + alpha * sum of the products of batch1 and batch2``."""
    self, batch1, batch2 = common(promote, self, batch1, batch2)
    product = bmm(wide(batch1), wide(batch2))
    # Said, because sums of small integers are int64 otherwise.
    total = lazy.sum(product, 0, dtype=product.dtype)
    return narrow(_plus(wide(self), total, beta, alpha), self)


for _op in (addmm, addmv, addr, baddbmm, addbmm):
    accept_factors_first(_op)
