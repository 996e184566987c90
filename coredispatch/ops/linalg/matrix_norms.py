"""Norms of vectors and matrices, and what is read off singular values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.linalg.vector_norms import power_norm_grad, smallest_that_counts
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.shape.transposes import mT
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import DType, IntList, Scalar, Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import conditioned, normalize_dims, require_one_of
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import Value, composite
from coredispatch.registry.model.dtypes import float32, float64
from coredispatch.registry.model.errors import ArgumentError, DTypeError, OpError, ShapeError

__all__ = [
    "cdist",
    "linalg_cond",
    "linalg_matrix_norm",
    "linalg_matrix_rank",
    "linalg_norm",
    "linalg_vector_norm",
    "pdist",
]


def _all_but(dims: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return tuple(d for d in range(ndim) if d not in dims)


def _floating(x: Any, dtype: Any) -> Any:
    if dtype is not None:
        if dtype.category < 2 or x.dtype.is_complex != dtype.is_complex and x.dtype.category > 1:
            raise DTypeError(
                f"a norm of {x.dtype} elements cannot be taken in dtype={dtype}",
                fix="give a floating dtype for real elements, a complex one for complex elements",
            )
        return x.to_dtype(dtype)
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise DTypeError(
            f"a norm needs floating or complex elements, got {x.dtype}",
            fix="convert with x.float()",
        )
    return x


def _vector_norm_reference(self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    dims = normalize_dims(dim, self.ndim)
    order = (*_all_but(dims, self.ndim), *dims)
    kept = self.transpose(order).reshape(
        *(self.shape[d] for d in order[: self.ndim - len(dims)]), -1
    )
    out = np.linalg.norm(kept, ord, axis=-1)
    return np.expand_dims(out, dims) if keepdim else out


def _vector_norms(make: Any) -> Iterator[Sample]:
    for ord in (2, 1, 3, 0.5, 0, math.inf, -math.inf):
        yield Sample(make((3, 5)), ord)
        yield Sample(make((2, 3, 4)), ord, (0, -1), True)
    for s in ((), (1,), (257,)):
        yield Sample(make(s))
    yield Sample(make((3, 257)), 2, -1)


@composite(
    name="linalg_vector_norm",
    reference=_vector_norm_reference,
    samples=_vector_norms,
    dtypes="float",
    cast="float32_accelerated",
    tolerance=conditioned,
    smooth=False,
    namespace="linalg",
    method=False,
)
def linalg_vector_norm(
    self: Tensor,
    ord: object = 2,
    dim: IntList | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """``sum(|x|**ord) ** (1/ord)`` over ``dim`` (None: all elements).

    ``inf`` and ``-inf`` are the greatest and the least magnitude, 0 the number of nonzero
    elements. Real for complex input. Half precision adds up in float32.
    """
    if isinstance(ord, str):
        raise ArgumentError(
            f"ord={ord!r} is a norm of matrices, and this is a vector",
            fix="give a number; names are for matrices",
        )
    x = _floating(self, dtype)
    power: Any = ord
    if not x.numel() and power < 0:
        over = [x.shape[d] for d in normalize_dims(dim, x.ndim)]
        if 0 in over:
            raise OpError(
                f"linalg.vector_norm cannot compute the {ord} norm of no elements: it has no value "
                f"for them, and dimensions of lengths {over} are reduced",
                fix="use an ord of 0 or more",
            )
    half = x.dtype.itemsize == 2
    out = lazy.power_norm(x.to_dtype(float32) if half else x, float(power), dim, keepdim)
    return out.to_dtype(x.dtype) if half else out


linalg_vector_norm.edge("0 at 0", [0.0, 3.0, -4.0], 1, gradient=[0.0, 1.0, -1.0])
linalg_vector_norm.edge("0 at 0", [0.0, 0.0], 2, gradient=[0.0, 0.0])
linalg_vector_norm.edge("ties share", [3.0, -3.0, 1.0], float("inf"), gradient=[0.5, -0.5, 0.0])
linalg_vector_norm.edge(
    "ties share", [3.0, -3.0, 1.0, 1.0], -float("inf"), gradient=[0.0, 0.0, 0.5, 0.5]
)


def _greatest(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The greatest of numbers that are not negative: 0 where there are none."""
    if x.shape[dim]:
        return lazy.amax(x, dim, keepdim)
    return lazy.sum(x, dim, keepdim)


def _matrix_norm_reference(
    self: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False
) -> Any:
    return np.linalg.norm(self, ord, axis=tuple(dim), keepdims=keepdim)


def _matrix_norms(make: Any) -> Iterator[Sample]:
    for ord in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        yield Sample(make((3, 4)), ord)
        yield Sample(make((2, 3, 4)), ord, (0, 2), True)


@composite(
    name="linalg_matrix_norm",
    reference=_matrix_norm_reference,
    samples=_matrix_norms,
    dtypes=(float32, float64),
    tolerance=conditioned,
    smooth=False,
    namespace="linalg",
    method=False,
    cast="float32_accelerated",
)
def linalg_matrix_norm(
    self: Tensor,
    ord: object = "fro",
    dim: IntList = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Norms of the matrices in the planes ``dim``.

    ``"fro"`` and ``"nuc"``: root of the sum of squares, sum of singular values. 2 and -2: the
    greatest and least singular value. 1, -1, ``inf``, ``-inf``: extremes of the sums of
    magnitudes of the columns, of the rows.
    """
    x = _floating(self, dtype)
    if len(dim) != 2:
        raise ShapeError(
            f"a matrix norm needs two dimensions, got dim={tuple(dim)}",
            fix="name two dimensions with dim=",
        )
    row, column = normalize_dims(dim, x.ndim)
    if ord == "fro":
        return linalg_vector_norm(x, 2, (row, column), keepdim)
    power: Any = ord
    if ord == "nuc" or (not isinstance(ord, str) and abs(power) == 2):
        values = lazy.linalg_svdvals(lazy.movedim(x, (row, column), (-2, -1)))
        pick = lazy.sum if ord == "nuc" else _greatest if power > 0 else lazy.amin
        out = pick(values, -1)
    elif not isinstance(ord, str) and (abs(power) == 1 or math.isinf(power)):
        first, second = (row, column) if abs(power) == 1 else (column, row)
        sums = lazy.sum(lazy.abs(x), first, True)
        out = (_greatest if power > 0 else lazy.amin)(sums, second, True)
        out = shape.squeeze(out, (row, column))
    else:
        raise ArgumentError(
            f"ord={ord!r} is no matrix norm", fix="use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf"
        )
    if keepdim:
        for d in sorted((row, column)):
            out = shape.unsqueeze(out, d)
    return out


@composite(
    name="linalg_norm",
    reference=lambda A, ord=None, dim=None, keepdim=False: np.linalg.norm(
        A, ord, axis=dim, keepdims=keepdim
    ),
    samples=lambda make: (
        Sample(make((5,))),
        Sample(make((3, 4))),
        Sample(make((3, 4)), 1),
        Sample(make((3, 4)), 2, 1),
        Sample(make((2, 3, 4)), "fro", (0, 1), True),
    ),
    dtypes=(float32, float64),
    tolerance=conditioned,
    smooth=False,
    namespace="linalg",
    method=False,
)
def linalg_norm(
    A: Tensor,
    ord: object = None,
    dim: IntList | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """A vector norm where one dimension counts, a matrix norm where two do.

    Without ``ord`` the 2-norm of all elements of ``dim``, however many there are.
    """
    if ord is None:
        return linalg_vector_norm(A, 2, dim, keepdim, dtype=dtype)
    count = A.ndim if dim is None else len(dim)
    if count == 1:
        return linalg_vector_norm(A, ord, dim, keepdim, dtype=dtype)
    if count == 2:
        return linalg_matrix_norm(A, ord, dim or (-2, -1), keepdim, dtype=dtype)
    raise ShapeError(
        f"ord={ord!r} is a norm of one or two dimensions, not of {count}",
        fix="name one or two with dim=",
    )


# ---- read off singular values -------------------------------------------------------------------


def _rank_reference(
    A: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Any:
    values = np.abs(np.linalg.eigvalsh(A)) if hermitian else np.linalg.svd(A, compute_uv=False)
    if rtol is None:
        rtol = 0.0 if atol else max(A.shape[-2:]) * np.finfo(A.dtype).eps
    limit = np.maximum(values.max(-1, keepdims=True) * rtol, atol or 0.0) if tol is None else tol
    return (values > limit).sum(-1)


@composite(
    cast="float32",
    name="linalg_matrix_rank",
    reference=_rank_reference,
    samples=lambda make: (Sample(make(s)) for s in ((4, 4), (3, 5), (2, 4, 3))),
    dtypes=(float32, float64),
    differentiable=False,
    namespace="linalg",
    method=False,
    alias=(),
)
def linalg_matrix_rank(
    A: Tensor,
    tol: float | None = None,
    hermitian: bool = False,
    *,
    atol: float | None = None,
    rtol: float | None = None,
) -> Tensor:
    """Number of singular values above ``tol``, int64.

    Without ``tol`` the limit is the greater of ``atol`` and ``rtol`` times the greatest value;
    ``rtol`` is max(m, n) * eps where neither is given. Each may be a tensor of one number for each
    matrix.
    """
    return _rank(A, tol, hermitian, atol, rtol)


@linalg_matrix_rank.overload
def _(
    A: Tensor,
    tol: Tensor | Scalar | None = None,
    hermitian: bool = False,
    *,
    atol: Tensor | Scalar | None = None,
    rtol: Tensor | Scalar | None = None,
) -> Tensor:
    return _rank(A, tol, hermitian, atol, rtol)


def _rank(A: Any, tol: Any, hermitian: bool, atol: Any, rtol: Any) -> Any:
    if A.dtype.to_real() not in (float32, float64):
        raise DTypeError(
            f"the rank of a matrix needs floating or complex elements of 32 bits or more, got "
            f"{A.dtype}",
            fix="convert with A.float()",
        )
    values = lazy.abs(lazy.linalg_eigvalsh(A)) if hermitian else lazy.linalg_svdvals(A)
    if tol is not None:
        limit = shape.unsqueeze(tol, -1) if isinstance(tol, Value) else tol
    elif values.shape[-1]:
        default = max(A.shape[-2:]) * float(np.finfo(A.dtype.to_real().name).eps)
        limit = smallest_that_counts(values, rtol, atol, default)
    else:
        limit = 0.0
    return lazy.sum(lazy.gt(values, limit), -1)


@composite(
    cast="float32",
    name="linalg_cond",
    reference=lambda A, p=None: np.linalg.cond(A, p),
    samples=lambda make: (Sample(make((4, 4)), p) for p in (None, 2, 1, "fro", math.inf)),
    dtypes=(float32, float64),
    tolerance=conditioned,
    smooth=False,
    namespace="linalg",
    method=False,
)
def linalg_cond(A: Tensor, p: object = None) -> Tensor:
    """Condition number: the norm of ``A`` times that of its inverse (2-norm by default).

    Infinite for a singular matrix.
    """
    power: Any = 2 if p is None else p
    if not isinstance(power, str) and abs(power) == 2:
        values = lazy.linalg_svdvals(A)
        if not values.shape[-1]:
            return values.sum(-1)  # of a matrix without elements
        # Of values that repeat, the first is the greatest and the last the least, as in PyTorch.
        largest, least = values[..., 0], values[..., -1]
        return largest / least if power > 0 else least / largest
    singular = lazy.isinf(lazy.linalg_slogdet(A.detach())[1])
    unit = lazy.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    regular = lazy.where(singular.unsqueeze(-1).unsqueeze(-1), unit, A)
    condition = linalg_matrix_norm(A, p) * linalg_matrix_norm(lazy.linalg_inv(regular), p)
    return lazy.masked_fill(condition, singular, math.inf)


# ---- distances ----------------------------------------------------------------------------------


_CDIST_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@composite(
    reference=lambda x1, x2, p=2.0, compute_mode=None: _vector_norm_reference(
        x1[..., :, None, :] - x2[..., None, :, :], p, -1
    ),
    samples=lambda make: (
        Sample(make((4, 3)), make((5, 3))),
        Sample(make((2, 4, 3)), make((2, 5, 3)), 1.0),
        Sample(make((4, 3)), make((5, 3)), math.inf),
        Sample(make((4, 3)), make((5, 3)), 2.0, "donot_use_mm_for_euclid_dist"),
    ),
    dtypes=(float32, float64),
    cast="float32",
    tolerance=conditioned,
    unbroadcast=True,
    smooth=False,
    method=False,
)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The ``p``-norm of all differences of a row of ``x1`` and one of ``x2``, (..., n, m).

    Always computed from the differences, which is exact for equal rows, in each of PyTorch's
    three ``compute_mode``.
    """
    if compute_mode is not None:
        require_one_of("compute_mode", compute_mode, _CDIST_MODES)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            f"rows of one length are needed, got {x1.shape} and {x2.shape}",
            fix="give both as many columns",
        )
    return linalg_vector_norm(shape.unsqueeze(x1, -2) - shape.unsqueeze(x2, -3), p, -1)


cdist.edge(
    "0 at a distance of 0",
    [[0.0, 0.0], [1.0, 0.0]],
    [[0.0, 0.0]],
    gradient=([[0.0, 0.0], [1.0, 0.0]], [[-1.0, 0.0]]),
)


def _difference_grad(grad: Any, out: Any, difference: Any, p: float) -> Any:
    """The gradient of differences along the last dimension whose norm is ``out``."""
    slopes = power_norm_grad(wide(grad), wide(out), wide(difference), float(p), (-1,), False)
    return narrow(slopes, difference)


def _cdist_backward_samples(make: Any) -> Iterator[Sample]:
    for p in (2.0, 1.0, 3.0):  # of the largest, rounding decides which one it is
        for lead in ((), (2,)):
            x1, x2 = make((*lead, 4, 3)), make((*lead, 5, 3))
            norms = np.linalg.norm(x1[..., :, None, :] - x2[..., None, :, :], p, -1)
            yield Sample(make((*lead, 4, 5)), x1, x2, p, norms.astype(x1.dtype))


@composite(
    samples=_cdist_backward_samples,
    dtypes=(float32, float64),
    tolerance=conditioned,
    smooth=False,
    namespace=(),
    method=False,
)
def cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, out: Tensor) -> Tensor:
    """Gradient of ``x1`` in ``out``, which is :func:`cdist` of ``x1`` and ``x2``.

    That of ``x2`` is this with both, ``grad`` and ``out`` turned: lengths know no direction.
    """
    # Computed again, not kept: there are as many as rows times rows times columns.
    difference = shape.unsqueeze(x1, -2) - shape.unsqueeze(x2, -3)
    return lazy.sum(_difference_grad(grad, out, difference, p), -2)


@cdist.vjp
def _(grad, out, x1, x2, p):
    def of_second() -> Any:
        return cdist_backward(mT(grad), x2, x1, p, mT(out))

    return lambda: cdist_backward(grad, x1, x2, p, out), of_second


@composite(
    out=lambda input, *_: (input.shape[0] * (input.shape[0] - 1) // 2,),
    reference=lambda input, p=2.0: _vector_norm_reference(
        input[np.triu_indices(len(input), 1)[0]] - input[np.triu_indices(len(input), 1)[1]], p, -1
    ),
    samples=lambda make: (
        Sample(make((4, 3))),
        Sample(make((5, 2)), 1.0),
        Sample(make((4, 3)), math.inf),
        Sample(make((3, 2)), 3.0),
    ),
    dtypes=(float32, float64),
    cast="float32_accelerated",
    tolerance=conditioned,
    smooth=False,
    method=False,
    namespace="nn.functional",
)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The ``p``-norms of the differences of all pairs of rows of ``(N, M)``: ``(N (N - 1) / 2,)``.

    The upper triangle of :func:`cdist` of ``input`` with itself, row by row.
    """
    if input.ndim != 2 or p < 0:
        raise ShapeError(
            f"pdist of {tuple(input.shape)} with p={p}", fix="use (N, M) and a p of at least 0"
        )
    places = _pairs(input)
    return lazy.index_select(lazy.reshape(cdist(input, input, p), (-1,)), 0, places)


def _pairs(input: Any) -> Any:
    """Where the distances of all pairs stand in the matrix of all distances, read row by row."""
    n = input.shape[0]
    rows, columns = lazy.triu_indices(n, n, 1, device=input.device).unbind(0)
    return rows * n + columns


@pdist.vjp
def _(grad, input, p):
    n = input.shape[0]
    slopes = lazy.index_copy(lazy.reshape(grad.new_zeros((n, n)), (-1,)), 0, _pairs(input), grad)
    slopes = lazy.reshape(slopes, (n, n))
    return cdist_backward(slopes + mT(slopes), input, input, p, cdist(input, input, p))
