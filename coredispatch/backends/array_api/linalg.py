"""Array-API kernels of matrix products and of matrix decompositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.namespace import Namespace
from coredispatch.registry.model.dtypes import DType, bool_, complex64, complex128, float32, float64
from coredispatch.registry.model.errors import DTypeError, LinAlgError, ShapeError

__all__ = ["kernels"]

_LAPACK = (float32, float64, complex64, complex128)


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``.

    The decompositions are there where the namespace has the ``linalg`` extension.
    """

    xp = Namespace.of(xp)

    def matmul(a: Any, b: Any) -> Any:
        dtype = DType.of(a.dtype)
        if dtype.is_floating_point and dtype.itemsize == 2:
            wide = xp.matmul(xp.astype(a, xp.float32), xp.astype(b, xp.float32))
            return xp.astype(wide, a.dtype)
        if dtype is bool_ and not xp.strided:  # no number to the standard
            return xp.matmul(xp.astype(a, xp.int64), xp.astype(b, xp.int64)) != 0
        return xp.matmul(a, b)

    table: dict[str, Callable[..., Any]] = {"matmul": matmul}
    if xp.has("linalg"):
        table |= _decompositions(xp, xp.linalg)
    return table


def _decompositions(xp: Any, linalg: Any) -> dict[str, Callable[..., Any]]:
    failure = getattr(linalg, "LinAlgError", RuntimeError)

    def undefined(x: Any) -> bool:
        return bool(xp.any(xp.isnan(x)))

    def singular(a: Any) -> bool:
        return bool(xp.any(tuple(linalg.slogdet(a))[0] == 0))

    def mirrored(x: Any, uplo: str) -> Any:
        """``x`` with one triangle for both: the standard does not say which of them is read."""
        half = xp.tril(x) if uplo == "L" else xp.triu(x)
        strict = xp.tril(x, k=-1) if uplo == "L" else xp.triu(x, k=1)
        mirror = xp.matrix_transpose(strict)
        mirror = xp.conj(mirror) if DType.of(x.dtype).is_complex else mirror
        return half + mirror

    def cholesky(x: Any, upper: bool) -> Any:
        if upper or not xp.strided:
            x = mirrored(x, "U" if upper else "L")
        try:
            lower = linalg.cholesky(x)
        except failure as error:
            raise LinAlgError(str(error), fix="the matrix must be positive definite") from error
        if not xp.strided and undefined(lower) and not undefined(x):  # JAX raises nothing
            raise LinAlgError(
                "the matrix is not positive definite", fix="the matrix must be positive definite"
            )
        return xp.conj(xp.matrix_transpose(lower)) if upper else lower

    def qr(x: Any, mode: str) -> tuple[Any, Any]:
        if mode == "r":
            return xp.zeros(0, dtype=x.dtype), tuple(linalg.qr(x, mode="reduced"))[1]
        return tuple(linalg.qr(x, mode=mode))

    def svd(x: Any, full_matrices: bool) -> tuple[Any, Any, Any]:
        return tuple(linalg.svd(x, full_matrices=full_matrices))

    def eigh(x: Any, uplo: str) -> tuple[Any, Any]:
        return tuple(linalg.eigh(mirrored(x, uplo)))

    def eig(x: Any) -> tuple[Any, Any]:
        # The standard has real eigenvalues only; NumPy and CuPy (13 and later) have this one.
        complex_dtype = xp.native(DType.of(x.dtype).to_complex())
        return tuple(xp.astype(part, complex_dtype) for part in linalg.eig(x))

    def solve(a: Any, b: Any, left: bool) -> Any:
        if a.ndim < 2 or a.shape[-2] != a.shape[-1]:
            raise ShapeError(
                f"linalg_solve takes square matrices, got the shape {tuple(a.shape)}",
                fix="use lstsq for a system with more or fewer equations than unknowns",
            )
        vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
        b = b[..., None] if vector else b
        try:
            if left:
                x = linalg.solve(a, b)
            else:
                x = xp.matrix_transpose(
                    linalg.solve(xp.matrix_transpose(a), xp.matrix_transpose(b))
                )
        except failure as error:
            raise LinAlgError(
                str(error), fix="the matrix is singular; use lstsq or pinv"
            ) from error
        if not xp.strided and not bool(xp.all(xp.isfinite(x))) and singular(a):
            raise LinAlgError("the matrix is singular", fix="use lstsq or pinv")
        return x[..., 0] if vector else x

    table: dict[str, Callable[..., Any]] = {
        "cholesky": cholesky,
        "linalg_qr": qr,
        "linalg_svd": svd,
        "linalg_eigh": eigh,
        **({"linalg_eig": eig} if hasattr(linalg, "eig") else {}),
        "linalg_solve": solve,
        "linalg_slogdet": lambda x: tuple(linalg.slogdet(x)),
    }
    return {name: _of_lapack(function) for name, function in table.items()}


def _of_lapack(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, refusing what LAPACK has no routines for; some libraries make float64 of it."""

    def kernel(x: Any, *args: Any) -> Any:
        if DType.of(x.dtype) not in _LAPACK:
            raise DTypeError(
                f"decompositions need float32 or more, got {x.dtype}", fix="use x.float()"
            )
        return function(x, *args)

    return kernel
