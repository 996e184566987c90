"""The operators of the sparse layout, one block each.

Gradients with respect to a sparse tensor are sparse with the same pattern: what is not stored
is not a parameter. The two products close under differentiation,

    C = A @ B            dA = sample(A, dC, B.T)    dB = A.T @ dC
    S = sample(A, X, Y)  dX = dS @ Y.T              dY = (dS.T @ X).T

so derivatives of any order stay sparse (complex factors enter conjugated). ``sample(A, X, Y)``
is ``X @ Y`` at A's places only.

Names that start with ``csr_`` are primitives over the layout; the composites around them accept
strided tensors as well and pick the primitive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from coredispatch.plugin import (
    ArgumentError,
    ShapeError,
    composite,
    primitive,
    rules,
    to_raw,
    tolerance,
)
from coredispatch_sparse import anywhere, definitions, shapes
from coredispatch_sparse.csr import CSR

if TYPE_CHECKING:
    from coredispatch.plugin import Tensor

IntList: TypeAlias = int | Sequence[int]
Scalar: TypeAlias = bool | int | float | complex

__all__ = [
    "OPERATORS",
    "coalesce",
    "col_indices",
    "crow_indices",
    "dense_dim",
    "indices",
    "is_coalesced",
    "is_sparse_csr",
    "nnz",
    "sampled_matmul",
    "smm",
    "sparse_dim",
    "sparse_mask",
    "spmm",
    "sspaddmm",
    "to_dense",
    "to_sparse",
    "to_sparse_csc",
    "to_sparse_csr",
    "values",
]


def is_sparse_csr(tensor: Tensor) -> bool:
    """Whether ``tensor`` has the layout ``sparse_csr``."""
    return isinstance(to_raw(tensor), CSR)


def adjoint(tensor: Tensor) -> Tensor:
    """The conjugate of a complex tensor, a real one as it is."""
    return tensor.conj() if tensor.dtype.is_complex else tensor


# ---- primitives -------------------------------------------------------------------------------


def _assembled(crow_indices: Tensor, col_indices: Tensor, values: Tensor, size: IntList) -> Tensor:
    """What gives a strided tensor has a derivative by differences."""
    return csr_to_dense(csr_assemble(crow_indices, col_indices, values, size))


@composite(
    out=shapes.assembled,
    dtype=shapes.values_dtype,
    method=False,
    namespace=(),
    samples=definitions.assemblies,
    reference=definitions.assemble,
    tolerance=tolerance.exact,
    gradcheck=_assembled,
)
def csr_assemble(
    crow_indices: Tensor, col_indices: Tensor, values: Tensor, size: IntList
) -> Tensor:
    """The sparse tensor made of copies of the given parts.

    Indices on a device are read once: whatever computes with the matrix trusts them.
    """
    return anywhere.assemble(crow_indices, col_indices, values, size)


@csr_assemble.vjp
def _(grad, out):
    return None, None, values(sparse_mask(grad, out))


def _all_stored(self: Tensor) -> Tensor:
    """What is stored does not depend on the values here: a derivative by differences exists."""
    return csr_to_dense(csr_from_dense(self + 8))


@composite(
    out=shapes.matrix,
    dtype=rules.same,
    method=False,
    namespace=(),
    samples=definitions.dense_matrices,
    reference=definitions.sparse,
    tolerance=tolerance.exact,
    gradcheck=_all_stored,
)
def csr_from_dense(self: Tensor) -> Tensor:
    """The nonzero elements of a strided matrix, indices in int64."""
    shapes.matrix(self)
    return anywhere.from_dense(self)


@csr_from_dense.vjp
def _(grad):
    return to_dense(grad)


@primitive(
    out=rules.same_shape,
    dtype=rules.same,
    method=False,
    namespace=(),
    samples=definitions.matrices,
    reference=definitions.strided,
    tolerance=tolerance.exact,
)
def csr_to_dense(self: Tensor) -> Tensor:
    """The strided matrix with zeros where nothing is stored."""


@csr_to_dense.vjp
def _(grad, self):
    return sparse_mask(grad, self)


@primitive(
    out=rules.same_shape,
    dtype=rules.same,
    method=False,
    namespace=(),
    samples=definitions.matrices_and_masks,
    reference=definitions.sampled,
    tolerance=tolerance.exact,
)
def csr_sample(self: Tensor, mask: Tensor) -> Tensor:
    """The elements of ``self``, strided or sparse, at the places sparse ``mask`` stores."""


@csr_sample.vjp
def _(grad, self):
    return sparse_mask(grad, self) if is_sparse_csr(self) else to_dense(grad), None


@primitive(
    out=shapes.transposed,
    dtype=rules.same,
    method=False,
    namespace=(),
    samples=definitions.matrices,
    reference=definitions.transposed,
    tolerance=tolerance.exact,
)
def csr_transpose(self: Tensor) -> Tensor:
    """The transpose, again in CSR."""


@csr_transpose.vjp
def _(grad):
    return csr_transpose(grad)


@primitive(
    out=shapes.product,
    dtype=rules.promote,
    method=False,
    namespace=(),
    cast="lower",
    samples=definitions.products,
    reference=definitions.product,
    tolerance=tolerance.dot,
)
def csr_matmul(self: Tensor, other: Tensor) -> Tensor:
    """Sparse ``self`` times a strided vector or matrix; the result is strided."""


def _csr_matmul_self_grad(grad, self, other):
    x, y = (grad[:, None], other[None, :]) if other.ndim == 1 else (grad, other.mT)
    return csr_sampled_matmul(self, x, adjoint(y))


csr_matmul.vjp(
    self=_csr_matmul_self_grad,
    other=lambda grad, self: csr_matmul(csr_transpose(adjoint(self)), grad),
)


@primitive(
    out=shapes.sampled,
    dtype=rules.promote,
    method=False,
    namespace=(),
    cast="lower",
    samples=definitions.sampled_products,
    reference=definitions.sampled_product,
    tolerance=tolerance.dot,
)
def csr_sampled_matmul(self: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``x @ y`` computed only at the places sparse ``self`` stores (SDDMM)."""


csr_sampled_matmul.vjp(
    x=lambda grad, y: csr_matmul(grad, adjoint(y).mT),
    y=lambda grad, x: csr_matmul(csr_transpose(grad), adjoint(x)).mT,
)


@primitive(
    alias=("_values",),
    out=shapes.stored,
    dtype=rules.same,
    namespace=(),
    samples=definitions.matrices,
    reference=definitions.stored,
    tolerance=tolerance.exact,
)
def values(self: Tensor) -> Tensor:
    """A copy of the stored elements of a sparse tensor, ``(nnz,)``, row by row."""


@values.vjp
def _(grad, self):
    return csr_with_values(self, grad)


@primitive(
    out=rules.same_shape,
    dtype=shapes.second_dtype,
    method=False,
    namespace=(),
    samples=definitions.matrices_and_values,
    reference=definitions.with_values,
    tolerance=tolerance.exact,
)
def csr_with_values(self: Tensor, values: Tensor) -> Tensor:
    """A sparse tensor with the pattern of ``self`` and other values."""


csr_with_values.vjp(values=lambda grad: values(grad))


@primitive(
    out=lambda self: (shapes.matrix(self)[0] + 1,),
    dtype=shapes.index_dtype,
    differentiable=False,
    namespace=(),
    samples=definitions.matrices,
    reference=definitions.row_pointers,
    tolerance=tolerance.exact,
)
def crow_indices(self: Tensor) -> Tensor:
    """Where each row of a sparse tensor starts, ``(rows + 1,)`` int32 or int64."""


@primitive(
    out=shapes.stored,
    dtype=shapes.index_dtype,
    differentiable=False,
    namespace=(),
    samples=definitions.matrices,
    reference=definitions.columns,
    tolerance=tolerance.exact,
)
def col_indices(self: Tensor) -> Tensor:
    """The column of each stored element of a sparse tensor, ``(nnz,)`` int32 or int64."""


@primitive(
    name="_nnz",
    namespace=(),
    samples=definitions.matrices,
    reference=definitions.stored_count,
    tolerance=tolerance.exact,
)
def nnz(self: Tensor) -> int:
    """Number of stored elements of a sparse tensor, explicit zeros included."""


@primitive(
    namespace=(),
    samples=definitions.matrices,
    reference=lambda self: True,
    tolerance=tolerance.exact,
)
def is_coalesced(self: Tensor) -> bool:
    """Whether a sparse tensor stores no element twice: always, they are summed when it is made."""


@primitive(
    namespace=(), samples=definitions.matrices, reference=lambda self: 2, tolerance=tolerance.exact
)
def sparse_dim(self: Tensor) -> int:
    """Number of dimensions of a sparse tensor that are stored by index: 2."""


@primitive(
    namespace=(), samples=definitions.matrices, reference=lambda self: 0, tolerance=tolerance.exact
)
def dense_dim(self: Tensor) -> int:
    """Number of dimensions of a sparse tensor whose elements are stored whole: 0."""


# ---- composites: what users call --------------------------------------------------------------


def _through_csr(self: Tensor) -> Tensor:
    """A strided tensor again, by way of sparse_csr: what derivatives by differences can check."""
    return to_dense(to_sparse_csr(self if is_sparse_csr(self) else self + 8))


def _through_coordinates(self: Tensor) -> Tensor:
    """As :func:`_through_csr`, by way of coordinates."""
    return to_dense(to_sparse(self if is_sparse_csr(self) else self + 8))


def _through_coalesce(self: Tensor) -> Tensor:
    """The strided tensor of a coalesced one."""
    return to_dense(coalesce(self))


@composite(
    namespace=(),
    samples=definitions.either,
    reference=definitions.sparse,
    tolerance=tolerance.exact,
    gradcheck=_through_csr,
)
def to_sparse_csr(self: Tensor) -> Tensor:
    """The nonzero elements of a matrix (NaN is one) as a sparse_csr tensor with int64 indices.

    A tensor that is sparse_csr already is returned as it is. Raises ShapeError unless 2-d.
    """
    return self if is_sparse_csr(self) else csr_from_dense(self)


def to_dense(self: Tensor) -> Tensor:
    """The strided tensor with zeros where nothing is stored; a strided tensor as it is."""
    return csr_to_dense(self) if is_sparse_csr(self) else self


@composite(
    namespace=(),
    samples=definitions.matrices_and_masks,
    reference=definitions.sampled,
    tolerance=tolerance.exact,
)
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements of ``self``, strided or sparse, at the places that sparse ``mask`` stores.

    The result has the pattern of ``mask``; places that a sparse ``self`` lacks become explicit
    zeros. Shapes must agree.
    """
    if tuple(self.shape) != tuple(mask.shape):
        raise ShapeError(f"a tensor of shape {self.shape} and a mask of shape {mask.shape}")
    if is_sparse_csr(self) and to_raw(self).pattern is to_raw(mask).pattern:
        return self
    return csr_sample(self, mask)


@composite(
    method=False,
    samples=definitions.products,
    reference=definitions.product,
    tolerance=tolerance.dot,
)
def spmm(self: Tensor, other: Tensor) -> Tensor:
    """``self @ other``, PyTorch's name for the product of a sparse and a dense tensor."""
    return self @ other


@composite(
    method=False,
    samples=definitions.sampled_products,
    reference=definitions.sampled_product,
    tolerance=tolerance.dot,
)
def sampled_matmul(self: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``x @ y`` at the places sparse ``self`` stores, as a sparse tensor (SDDMM).

    ``x`` is ``(rows, n)``, ``y`` ``(n, columns)``; both receive gradients, ``self`` gives only
    its pattern.
    """
    return csr_sampled_matmul(self, x, y)


# ---- PyTorch's names of the coordinate form ----------------------------------------------------
#
# A matrix in coordinates whose elements stand in order, each place once, has what CSR has.


@composite(
    alias=("to_sparse_coo",),
    namespace=(),
    samples=definitions.either,
    reference=definitions.sparse,
    tolerance=tolerance.exact,
    gradcheck=_through_coordinates,
)
def to_sparse(
    self: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: object = None,
    dense_dim: int | None = None,
) -> Tensor:
    """:func:`to_sparse_csr`, which also has :func:`indices`: PyTorch's coordinates.

    ``layout`` may be any of PyTorch's sparse ones: all are kept as ``sparse_csr``. Raises
    ArgumentError for another one, and for dimensions that stay dense.
    """
    if sparse_dim not in (None, 2) or dense_dim not in (None, 0):
        raise ArgumentError(
            f"sparse_dim={sparse_dim}, dense_dim={dense_dim}: there is no layout of dense rows",
            fix="leave them away: every element has its place",
        )
    if layout is not None and not str(layout).removeprefix("torch.").startswith("sparse_"):
        raise ArgumentError(f"layout={layout} is not sparse", fix="use to_dense()")
    return to_sparse_csr(self)


@composite(
    namespace=(),
    samples=definitions.either,
    reference=definitions.sparse,
    tolerance=tolerance.exact,
    gradcheck=_through_csr,
)
def to_sparse_csc(self: Tensor) -> Tensor:
    """:func:`to_sparse_csr`: a matrix has one sparse layout here."""
    return to_sparse_csr(self)


@composite(
    samples=definitions.matrix_products,
    reference=definitions.sparse_product,
    tolerance=tolerance.dot,
)
def smm(self: Tensor, mat: Tensor) -> Tensor:
    """The product of a sparse and a strided matrix, sparse."""
    return to_sparse_csr(self @ mat)


@composite(
    samples=definitions.sums_of_products,
    reference=definitions.sparse_sum_of_product,
    tolerance=tolerance.dot,
)
def sspaddmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """``beta * self + alpha * (mat1 @ mat2)``, sparse, of sparse ``self`` and ``mat1``."""
    return self * beta + smm(mat1, mat2) * alpha


@composite(
    differentiable=False,
    alias=("_indices",),
    namespace=(),
    samples=definitions.matrices,
    reference=definitions.coordinates,
    tolerance=tolerance.exact,
)
def indices(self: Tensor) -> Tensor:
    """Row and column of each stored element of a sparse tensor, ``(2, nnz)`` int64, in order."""
    starts = crow_indices(self).long()
    numbers = starts.new_ones((starts.shape[0] - 1,)).cumsum(0) - 1
    rows = numbers.repeat_interleave(starts[1:] - starts[:-1])
    pair = rows.new_tensor([0, 1]).unsqueeze(1)
    return rows * (1 - pair) + col_indices(self).long() * pair


@composite(
    namespace=(),
    samples=definitions.matrices,
    reference=definitions.sparse,
    tolerance=tolerance.exact,
    gradcheck=_through_coalesce,
)
def coalesce(self: Tensor) -> Tensor:
    """The tensor itself: a sparse_csr tensor stores every place once, in order."""
    return self


OPERATORS = (
    csr_assemble,
    csr_from_dense,
    csr_to_dense,
    csr_sample,
    csr_transpose,
    csr_matmul,
    csr_sampled_matmul,
    csr_with_values,
    values,
    crow_indices,
    col_indices,
    nnz,
    is_coalesced,
    sparse_dim,
    dense_dim,
    to_sparse_csr,
    sparse_mask,
    spmm,
    sampled_matmul,
    to_sparse,
    to_sparse_csc,
    smm,
    sspaddmm,
    indices,
    coalesce,
)
