"""Forms that report a failure as a number instead of an error, for each matrix of a stack."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops.linalg.factorizations import (
    FLOATS,
    cholesky,
    lapack_dtype,
    positive_definite,
    square_shape,
    symmetrised,
)
from coredispatch.ops.linalg.lu import linalg_lu_factor_ex
from coredispatch.ops.linalg.products import mH
from coredispatch.ops.linalg.systems import (
    invertible,
    linalg_inv,
    linalg_solve,
    systems,
)
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import conditioned
from coredispatch.registry import DType, composite
from coredispatch.registry.model.dtypes import int32
from coredispatch.registry.model.errors import LinAlgError


def _with_info(*fields: str) -> dict[str, Any]:
    return {
        "dtypes": FLOATS,
        "tolerance": conditioned,
        "namespace": "linalg",
        "method": False,
        "fields": fields,
    }


def _result_and_info(A: Any, *_: Any) -> tuple[DType, DType]:
    return lapack_dtype(A), int32


def _no_failure(A: Any) -> Any:
    return lazy.zeros(tuple(A.shape[:-2]), dtype=int32, device=A.device)


@composite(
    cast="float32",
    out=lambda A, *_: [square_shape(A), square_shape(A)[:-2]],
    dtype=_result_and_info,
    reference=lambda A, *, upper=False, check_errors=False: (
        np.linalg.cholesky(A, upper=upper),
        np.zeros(A.shape[:-2], np.int32),
    ),
    samples=positive_definite,
    gradcheck=lambda *args: symmetrised(lambda x: lazy.linalg_cholesky_ex(x)[0])(args[0]),
    **_with_info("L", "info"),
)
def linalg_cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """``(L, info)``: :func:`linalg.cholesky`, and for each matrix the order of the first leading
    minor that is not positive definite (int32), 0 where all are. Columns from there on are
    those of ``A``.
    """
    try:
        return linalg_cholesky_ex.result_type((cholesky(A, upper), _no_failure(A)))
    except LinAlgError:
        if check_errors:
            raise
    n = square_shape(A)[-1]
    factors, info = [], []
    lower = mH(A) if upper else A
    for x in shape.reshape(lower, (-1, n, n)):
        order = _definite_order(x)
        head = lazy.constant_pad_nd(_factor(x, order), (0, n - order, 0, n - order))
        rows = lazy.arange(n, device=x.device)
        factors.append(lazy.where(rows < order, head, lazy.tril(x)))
        info.append(0 if order == n else order + 1)
    lower = shape.reshape(lazy.stack(factors), tuple(A.shape))
    return linalg_cholesky_ex.result_type((mH(lower) if upper else lower, _numbers(info, A)))


def _numbers(info: list[int], A: Any) -> Any:
    """The numbers as int32, one for each matrix of ``A``."""
    parts = [lazy.full((1,), i, dtype=int32, device=A.device) for i in info]
    return shape.reshape(lazy.cat(parts), tuple(A.shape[:-2]))


def _factor(x: Any, order: int) -> Any:
    return cholesky(x[:order, :order]) if order else x[:0, :0]


def _definite_order(x: Any) -> int:
    """The greatest order of a leading minor that has a Cholesky factor, by bisection."""
    fits, fails = 0, x.shape[0] + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        try:
            _factor(x, middle)
            fits = middle
        except LinAlgError:
            fails = middle
    return fits


def _singular(A: Any) -> Any:
    return linalg_lu_factor_ex(A.detach())[2]


def _made_regular(A: Any, info: Any) -> tuple[Any, Any]:
    """``A`` with the identity in place of its singular matrices, and where those are."""
    bad = shape.unsqueeze(shape.unsqueeze(lazy.ne(info, 0), -1), -1)
    one = lazy.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return lazy.where(bad, one, A), bad


@composite(
    cast="float32",
    out=lambda A, *_: [square_shape(A), square_shape(A)[:-2]],
    dtype=_result_and_info,
    reference=lambda A, **_: (np.linalg.inv(A), np.zeros(A.shape[:-2], np.int32)),
    samples=invertible,
    **_with_info("inverse", "info"),
)
def linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """``(inverse, info)``: :func:`linalg.inv`, and for each matrix the place of the first zero on
    the diagonal of its U (int32), 0 where there is none. Singular matrices have NaN for an inverse.
    """
    try:
        return linalg_inv_ex.result_type((linalg_inv(A), _no_failure(A)))
    except LinAlgError:
        if check_errors:
            raise
    info = _singular(A)
    regular, bad = _made_regular(A, info)
    inverse = lazy.masked_fill(linalg_inv(regular), bad, float("nan"))
    return linalg_inv_ex.result_type((inverse, info))


@composite(cast="float32", samples=systems, **_with_info("result", "info"))
def linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """``(result, info)``: :func:`linalg.solve`, and for each matrix of ``A`` the place of the first
    zero on the diagonal of its U (int32), 0 where there is none. Solutions of singular systems are
    NaN.
    """
    try:
        found = linalg_solve(A, B, left=left)
        return linalg_solve_ex.result_type((found, _no_failure(A)))
    except LinAlgError:
        if check_errors:
            raise
    info = _singular(A)
    regular, bad = _made_regular(A, info)
    found = linalg_solve(regular, B, left=left)
    bad = bad if found.ndim >= A.ndim else shape.squeeze(bad, -1)
    return linalg_solve_ex.result_type((lazy.masked_fill(found, bad, float("nan")), info))
