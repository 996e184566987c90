"""The rows that the layout ``sparse_csr`` puts into the table.

Kernels of core operators see whatever mixture of layouts the call brought. What has no sparse
meaning here is refused with :class:`MissingKernel`: no operand is ever made dense to serve a
call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DimError, Layout, MissingKernel, ShapeError, numpy_dtype
from coredispatch_sparse import kernels
from coredispatch_sparse.csr import CSR, Pattern, in_main_memory, size_of
from coredispatch_sparse.ops import csr_to_dense, to_sparse_csr
from coredispatch_sparse.printing import describe

__all__ = ["CPU_KERNELS", "FROM_STRIDED", "LAYOUT"]


def refuse(what: str) -> MissingKernel:
    """The error for a combination of operands without a sparse kernel."""
    return MissingKernel(
        f"there is no sparse_csr kernel for {what}",
        fix="call .to_dense() on the sparse operand if its dense form fits memory",
    )


def named(raw: Any) -> str:
    """``sparse``, ``strided`` or ``number``, for messages."""
    if isinstance(raw, CSR):
        return "sparse"
    return "strided" if isinstance(raw, np.ndarray) and raw.ndim else "number"


# ---- core operators ---------------------------------------------------------------------------


def matmul(self: Any, other: Any) -> np.ndarray:
    """sparse @ strided, strided @ sparse; matrices and vectors."""
    kinds = named(self), named(other)
    if kinds == ("sparse", "strided") and other.ndim <= 2:
        check_inner(self.shape, other.shape)
        return kernels.matmul(self, other)
    if kinds == ("strided", "sparse") and self.ndim <= 2:
        check_inner(self.shape, other.shape)
        return kernels.matmul(kernels.transpose(other), self.T).T
    raise refuse(f"{kinds[0]} @ {kinds[1]} of shapes {self.shape} and {other.shape}")


def check_inner(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Raise ShapeError unless the inner dimensions agree."""
    if left[-1] != right[0]:
        raise ShapeError(
            f"the inner dimensions of {left} and {right} differ",
            fix="transpose one factor, or check the order of the factors",
        )


def mul(self: Any, other: Any) -> CSR:
    """A sparse tensor times a number (a Python number or a 0-dim tensor)."""
    if named(other) == "number":
        return kernels.scale(self, other)
    if named(self) == "number":
        return kernels.scale(other, self)
    raise refuse(f"{named(self)} * {named(other)}")


@kernels.QUIET
def div(self: Any, other: Any, *options: Any) -> CSR:
    """A sparse tensor divided by a number."""
    if named(self) == "sparse" and named(other) == "number" and options in ((), (None,)):
        return CSR.of(self.pattern, np.true_divide(self.values, other))
    raise refuse(f"{named(self)} / {named(other)}" + (" rounded" if any(options) else ""))


def add(self: Any, other: Any) -> CSR:
    """The sum of two sparse tensors."""
    if named(self) == named(other) == "sparse":
        return kernels.add(self, other)
    raise refuse(f"{named(self)} + {named(other)}, whose result would be strided")


def sub(self: Any, other: Any) -> CSR:
    """The difference of two sparse tensors."""
    if named(self) == named(other) == "sparse":
        return kernels.add(self, neg(other))
    raise refuse(f"{named(self)} - {named(other)}, whose result would be strided")


def fill(self: CSR, value: Any) -> Any:
    """Zeros where something is stored, as ``zero_()`` asks; any other number makes it dense."""
    if not isinstance(value, (int, float)) or value != 0:
        return NotImplemented
    return CSR.of(self.pattern, np.zeros_like(self.values))


def neg(self: CSR) -> CSR:
    """Every stored value with the opposite sign."""
    return CSR.of(self.pattern, np.negative(self.values))


def conj(self: CSR) -> CSR:
    """Every stored value conjugated."""
    return CSR.of(self.pattern, np.conjugate(self.values))


def real(self: CSR) -> CSR:
    """The real part of every stored value, in memory of its own."""
    return CSR.of(self.pattern, self.values.real.copy())


def clone(self: CSR, *_: Any) -> CSR:
    """A tensor with values of its own; the pattern, which never changes, is shared."""
    return CSR.of(self.pattern, self.values.copy())


def zeros_like(self: CSR, dtype: Any) -> CSR:
    """Zeros stored at the same places: what an optimizer keeps beside a sparse parameter."""
    native = self.dtype if dtype is None else numpy_dtype(dtype)
    return CSR.of(self.pattern, np.zeros(self.nnz, native))


def copy(self: Any, src: Any, *_: Any) -> CSR:
    """``src``, pattern and all, in place of ``self``: both sparse."""
    if named(self) != "sparse" or named(src) != "sparse":
        raise refuse(f"copying {named(src)} into {named(self)}")
    if self.shape != src.shape:
        raise ShapeError(f"a tensor of shape {src.shape} copied into one of {self.shape}")
    return CSR.of(src.pattern, src.values.astype(self.dtype))


def permute(self: CSR, dims: tuple[int, ...]) -> CSR:
    """The transpose in CSR, or the tensor itself."""
    if sorted(d % 2 for d in dims) != [0, 1] or not all(-2 <= d < 2 for d in dims):
        raise DimError(f"dims {dims} of a 2-d tensor", fix="name each dimension once")
    return kernels.transpose(self) if dims[0] % 2 else self


# ---- operators of this plugin -----------------------------------------------------------------


def assemble(crow_indices: Any, col_indices: Any, values: Any, size: Any) -> CSR:
    """Copies of the parts as one checked CSR.

    Copies, because a later write to a part would change the sparse tensor behind the back of
    the backward pass that saved it.
    """
    return CSR(crow_indices.copy(), col_indices.copy(), values.copy(), size)


def sample(self: Any, mask: Any) -> CSR:
    """``self`` at the places of ``mask``."""
    if not isinstance(mask, CSR):
        raise refuse("a strided mask")
    if isinstance(self, CSR):
        return kernels.restrict(self, mask.pattern)
    return CSR.of(mask.pattern, self[mask.pattern.rows, mask.col_indices])


def sampled_matmul(self: Any, x: Any, y: Any) -> CSR:
    """``x @ y`` at the places of ``self``."""
    if not isinstance(self, CSR) or isinstance(x, CSR) or isinstance(y, CSR):
        raise refuse("a sampled product of these layouts: the pattern is sparse, factors strided")
    return kernels.sampled_product(self.pattern, x, y.T)


def with_values(self: Any, values: Any) -> CSR:
    """The pattern of ``self`` with copies of other values."""
    return CSR.of(self.pattern, values.copy())


#: rows of (sparse_csr, cpu)
CPU_KERNELS: dict[str, Callable[..., Any]] = {
    "matmul": matmul,
    "fill": fill,
    "mul": mul,
    "div": div,
    "add": add,
    "sub": sub,
    "neg": neg,
    "conj": conj,
    "real": real,
    "clone": clone,
    "copy": copy,
    "zeros_like": zeros_like,
    "detach": lambda self: self,
    "permute": permute,
    "to_dtype": kernels.QUIET(CSR.astype),
    "csr_to_dense": kernels.to_dense,
    "csr_sample": sample,
    "csr_transpose": kernels.transpose,
    "csr_matmul": matmul,
    "csr_sampled_matmul": sampled_matmul,
    "csr_with_values": with_values,
    "values": lambda self: self.values.copy(),
    "crow_indices": lambda self: self.crow_indices.copy(),
    "col_indices": lambda self: self.col_indices.copy(),
}

#: rows of cpu: from strided tensors to sparse ones
FROM_STRIDED: dict[str, Callable[..., Any]] = {
    "csr_assemble": assemble,
    "csr_from_dense": kernels.to_sparse_csr,
}


def thinned(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array with zeros, the whole first row among them: what a sparse tensor is made of."""
    kept = rng.random(array.shape) < 0.5
    if array.ndim and array.size:
        kept[0] = False
        kept[(-1,) * array.ndim] = True
    return np.where(kept, array, np.zeros((), array.dtype))


def pack(raw: CSR) -> dict[str, Any]:
    """The parts of a sparse tensor, as they are saved."""
    return {
        "crow_indices": raw.crow_indices,
        "col_indices": raw.col_indices,
        "values": raw.values,
        "size": list(raw.shape),
    }


def unpack(parts: dict[str, Any]) -> CSR:
    """What :func:`pack` took apart.

    NumPy's arrays are checked: they may come from a file. Those of another device come from a move,
    of a matrix that was checked when it was made.
    """
    crow, col, values = parts["crow_indices"], parts["col_indices"], parts["values"]
    if in_main_memory(crow):
        return CSR(crow, col, values, parts["size"])
    return CSR.of(Pattern(crow, col, size_of(parts["size"]), check=False), values)


LAYOUT = Layout(
    "sparse_csr",
    data_type=CSR,
    kernels={
        "is_sparse": lambda self: True,
        "_nnz": lambda self: self.nnz,
        "is_coalesced": lambda self: True,
        "sparse_dim": lambda self: 2,
        "dense_dim": lambda self: 0,
    },
    kernels_for={"cpu": CPU_KERNELS},
    describe=describe,
    pack=pack,
    unpack=unpack,
    takes=(),  # as PyTorch's CSR: the columns of a row rise
    to_dense=csr_to_dense,
    from_dense=to_sparse_csr,
    dtypes_checked=("float32", "float64", "complex64", "bfloat16"),
    representable=thinned,
)
