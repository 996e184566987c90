"""The linear algebra extension of the array API standard."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from coredispatch.frontend.array_api.manipulation import matrix_transpose
from coredispatch.frontend.array_api.promotion import call, operands
from coredispatch.frontend.array_api.statistics import sum as sum_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.dtypes import int64
from coredispatch.registry.model.errors import ArgumentError, ShapeError

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr",
    "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip

SlogdetResult = namedtuple("SlogdetResult", ("sign", "logabsdet"))


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product."""
    return call("matmul", *operands(x1, x2))  # type: ignore[no-any-return]


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """The sum of products over several dimensions."""
    return call("tensordot", *operands(x1, x2), axes)  # type: ignore[no-any-return]


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Inner products along ``axis``, the first factor conjugated."""
    x1, x2 = operands(x1, x2)
    if x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(
            f"vectors of {x1.shape[axis]} and {x2.shape[axis]} elements", fix="use equal lengths"
        )
    x1, x2 = call("broadcast_tensors", [x1, x2])
    first = call("conj_physical", x1) if x1.dtype.is_complex else x1
    return call("sum", first * x2, axis, dtype=x1.dtype)  # type: ignore[no-any-return]


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of two vectors."""
    return call("outer", *operands(x1, x2))  # type: ignore[no-any-return]


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product along ``axis``, of size 3."""
    x1, x2 = operands(x1, x2)
    return call("linalg_cross", *call("broadcast_tensors", [x1, x2]), dim=axis)  # type: ignore[no-any-return]


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The Cholesky factor."""
    return call("cholesky", x, upper)  # type: ignore[no-any-return]


def det(x: Tensor, /) -> Tensor:
    """The determinant."""
    return call("det", x)  # type: ignore[no-any-return]


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices."""
    return call("diagonal", x, offset, -2, -1)  # type: ignore[no-any-return]


def eig(x: Tensor, /) -> Any:
    """Eigenvalues and vectors, complex."""
    return call("linalg_eig", x)


def eigvals(x: Tensor, /) -> Tensor:
    """Eigenvalues, complex."""
    return call("linalg_eigvals", x)  # type: ignore[no-any-return]


def eigh(x: Tensor, /) -> Any:
    """Eigenvalues and vectors of symmetric matrices."""
    return call("linalg_eigh", x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of symmetric matrices."""
    return call("linalg_eigvalsh", x)  # type: ignore[no-any-return]


def inv(x: Tensor, /) -> Tensor:
    """The inverse."""
    return call("linalg_inv", x)  # type: ignore[no-any-return]


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of matrices."""
    return call("linalg_matrix_norm", x, ord, (-2, -1), keepdims)  # type: ignore[no-any-return]


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """A power of square matrices."""
    return call("matrix_power", x, n)  # type: ignore[no-any-return]


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The number of singular values above ``rtol`` times the greatest, int64."""
    values = svdvals(x)
    if rtol is None:
        return call("linalg_matrix_rank", x)  # type: ignore[no-any-return]
    if not values.shape[-1]:
        return call("zeros", tuple(x.shape[:-2]), dtype=int64)  # type: ignore[no-any-return]
    limit = call("amax", values, -1, True)
    limit = limit * (rtol[..., None] if isinstance(rtol, Tensor) else rtol)
    return (values > limit).sum(-1)  # type: ignore[no-any-return]


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The Moore-Penrose inverse."""
    if not isinstance(rtol, Tensor):
        return call("linalg_pinv", x, rtol)  # type: ignore[no-any-return]
    u, values, vh = svd(x, full_matrices=False)
    if not values.shape[-1]:
        return call("zeros_like", matrix_transpose(x))  # type: ignore[no-any-return]
    # A limit for each matrix of the stack.
    small = values <= call("amax", values, -1, True) * rtol[..., None]
    reciprocal = call("masked_fill", call("reciprocal", values), small, 0)
    return (vh.mH * reciprocal[..., None, :].to(x.dtype)) @ u.mH  # type: ignore[no-any-return]


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """The QR decomposition."""
    return call("linalg_qr", x, mode)


def slogdet(x: Tensor, /) -> Any:
    """The sign and the logarithm of the absolute value of the determinant."""
    return SlogdetResult(*call("linalg_slogdet", x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution of linear systems; ``x2`` is a vector only where it has one dimension."""
    x1, x2 = operands(x1, x2)
    if x2.ndim == 1:
        return call("linalg_solve", x1, x2)  # type: ignore[no-any-return]
    if x2.ndim == x1.ndim - 1:
        # Matrices, which PyTorch might take for a stack of vectors.
        x2 = x2.unsqueeze(0)
    return call("linalg_solve", x1, x2)  # type: ignore[no-any-return]


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """Singular values and vectors."""
    return call("linalg_svd", x, full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values, descending."""
    return call("linalg_svdvals", x)  # type: ignore[no-any-return]


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of the diagonal."""
    return sum_of(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """A norm of vectors over ``axis``: all elements, one dimension, or several."""
    if axis == ():
        if ord == 0:
            return (x != 0).to(x.dtype.to_real())
        return call("abs", x)  # type: ignore[no-any-return]
    if not isinstance(ord, (int, float)):
        raise ArgumentError(f"ord={ord!r} is no number", fix="ord=2")
    out: Tensor = call("linalg_vector_norm", x, ord, axis, keepdims)
    return out
