"""What serves sparse tensors on every backend that has no rows of its own, and makes them there.

It is made of core operators over the three arrays, so that it runs wherever they are. As the
kernels for the CPU, it never builds the dense form of an operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from coredispatch.plugin import (
    DType,
    MissingKernel,
    ShapeError,
    from_raw,
    operator,
    promote_types,
    to_raw,
)
from coredispatch_sparse.csr import CSR, Pattern, size_of

if TYPE_CHECKING:
    from coredispatch.plugin import Tensor

__all__ = ["ANYWHERE", "assemble", "from_dense"]


def sparse(tensor: Any) -> bool:
    """Whether the tensor is a sparse one."""
    return isinstance(getattr(tensor, "raw", None), CSR)


def part(tensor: Tensor, array: Any) -> Tensor:
    """One of the arrays of a sparse tensor, as a strided tensor that shares it."""
    return from_raw(array, keys_like=tensor)


def columns(tensor: Tensor) -> Tensor:
    """The column of each stored element, int64."""
    return part(tensor, to_raw(tensor).col_indices).long()


def rows(tensor: Tensor) -> Tensor:
    """The row of each stored element, int64."""
    ends = part(tensor, to_raw(tensor).crow_indices).long()[1:]
    count = int(to_raw(tensor).col_indices.shape[0])
    places = operator("arange")(count, dtype=DType.of("int64"), device=tensor.device)
    return operator("searchsorted")(ends.contiguous(), places, right=True)


def stored(tensor: Tensor) -> Tensor:
    """The stored elements, as a strided tensor that shares them."""
    return part(tensor, to_raw(tensor).values)


def with_values(tensor: Tensor, values: Tensor) -> Tensor:
    """The pattern of ``tensor`` with other values."""
    raw = CSR.of(to_raw(tensor).pattern, to_raw(values.contiguous()))
    return from_raw(raw, keys_like=tensor, layout="sparse_csr")


def common(a: Tensor, b: Tensor) -> DType:
    """The dtype of a product of matrices or vectors."""
    return promote_types(a.dtype, b.dtype)


def widened(tensor: Tensor, dtype: DType) -> Tensor:
    """A factor in ``dtype``, or in float32 where that is one of two bytes: sums are made in it."""
    half = dtype.is_floating_point and dtype.itemsize == 2
    return tensor.to(DType.of("float32") if half else dtype)


def refused(op: str, *operands: Any) -> MissingKernel:
    """The error of a combination that has no sparse kernel on this device."""
    kinds = ", ".join("sparse" if sparse(x) else "strided" for x in operands)
    device = next(x.device for x in operands if sparse(x))
    return MissingKernel(
        f"there is no sparse_csr kernel of {op!r} for {kinds} on {device}",
        fix="move it to the CPU, or call .to_dense() if the dense form fits memory",
    )


# ---- making them ------------------------------------------------------------------------------


def made(pattern: Pattern, values: Tensor) -> Tensor:
    """The sparse tensor of a checked pattern, where its values are."""
    raw = CSR.of(pattern, to_raw(values.contiguous()))
    return from_raw(raw, keys_like=values, layout="sparse_csr")


def offsets(rows: Tensor, count: int) -> Tensor:
    """``crow_indices`` of ``count`` rows, of which ``rows`` has one entry for each element."""
    counts = rows.new_zeros(count + 1).index_add(0, rows + 1, operator("ones_like")(rows))
    return counts.cumsum(0)


def from_dense(dense: Tensor) -> Tensor:
    """The elements that are not zero (NaN is not)."""
    places = (dense != 0).nonzero()
    row, column = places[:, 0], places[:, 1]
    crow, col = offsets(row, dense.shape[0]).contiguous(), column.contiguous()
    pattern = Pattern(to_raw(crow), to_raw(col), size_of(dense.shape), check=False)
    return made(pattern, dense[row, column])


def assemble(crow: Tensor, col: Tensor, values: Tensor, size: Any) -> Tensor:
    """Copies of the parts, whose indices are checked in main memory."""
    starts, places = crow.cpu().numpy(), col.cpu().numpy()
    shape = CSR(starts, places, np.zeros(len(places), np.int8), size).shape
    pattern = Pattern(to_raw(crow.clone()), to_raw(col.clone()), shape, check=False)
    return made(pattern, values.clone())


# ---- the rows ---------------------------------------------------------------------------------


def clone(self: Tensor, *_: Any) -> Tensor:
    """Values of its own; the pattern, which never changes, is shared."""
    return with_values(self, stored(self).clone())


def scaled(name: str) -> Callable[..., Tensor]:
    """``mul`` or ``div`` of the stored values by a number or a 0-dim tensor."""

    def kernel(self: Any, other: Any, *options: Any) -> Tensor:
        if name == "mul" and not sparse(self):
            self, other = other, self
        number = not sparse(other) and not getattr(other, "shape", ())
        if not sparse(self) or not number or options not in ((), (None,)):
            raise refused(name, self, other)
        return with_values(self, getattr(stored(self), name)(other))

    return kernel


def add(self: Any, other: Any) -> Tensor:
    """The sum of two sparse tensors; its pattern is the union of both."""
    if not sparse(self) or not sparse(other):
        raise refused("add", self, other)
    if to_raw(self).pattern is to_raw(other).pattern:
        return with_values(self, stored(self) + stored(other))
    if self.shape != other.shape:
        raise ShapeError(
            f"sparse_csr tensors of shapes {tuple(self.shape)} and {tuple(other.shape)} cannot be "
            "added",
            fix="sparse operands do not broadcast: give both the same shape",
        )
    width = self.shape[1]
    places = operator("cat")([rows(x) * width + columns(x) for x in (self, other)])
    if not places.shape[0]:
        return with_values(self, stored(self) + stored(other))
    union, entries = places.unique(return_inverse=True)
    values = operator("cat")([stored(self), stored(other)])
    values = values.new_zeros(union.shape[0]).index_add(0, entries, values)
    kinds = [part(x, to_raw(x).col_indices).dtype for x in (self, other)]
    index = promote_types(*kinds)
    row = union.div(width, rounding_mode="floor")
    crow = offsets(row, self.shape[0]).to(index).contiguous()
    col = (union - row * width).to(index).contiguous()
    return made(Pattern(to_raw(crow), to_raw(col), size_of(self.shape), check=False), values)


def sub(self: Any, other: Any) -> Tensor:
    """The difference of two sparse tensors."""
    if not sparse(self) or not sparse(other):
        raise refused("sub", self, other)
    return add(self, with_values(other, stored(other).neg()))


def zeros_like(self: Tensor, dtype: Any) -> Tensor:
    """Zeros stored at the same places: what an optimizer keeps beside a sparse parameter."""
    values = stored(self)
    return with_values(self, values.new_zeros(values.shape, dtype=dtype or values.dtype))


def copy(self: Any, src: Any, *_: Any) -> Tensor:
    """``src``, pattern and all, in place of ``self``: both sparse."""
    if not sparse(self) or not sparse(src):
        raise refused("copy", self, src)
    if self.shape != src.shape:
        raise ShapeError(
            f"a tensor of shape {tuple(src.shape)} copied into one of {tuple(self.shape)}"
        )
    return with_values(src, stored(src).to(stored(self).dtype, copy=True))


def elementwise(name: str) -> Callable[..., Tensor]:
    """An operator of the stored values that leaves zeros zero."""

    def kernel(self: Tensor, *options: Any) -> Tensor:
        return with_values(self, getattr(stored(self), name)(*options))

    return kernel


def to_dense(self: Tensor) -> Tensor:
    """Zeros, and the stored values put into their places."""
    values = stored(self)
    out = values.new_zeros(tuple(self.shape))
    return out.index_put((rows(self), columns(self)), values)


def sample(self: Any, mask: Any) -> Tensor:
    """The elements of a strided ``self`` at the places of ``mask``."""
    if sparse(self) or not sparse(mask):
        raise refused("sparse_mask", self, mask)
    return with_values(mask, self[rows(mask), columns(mask)])


def transpose(self: Tensor) -> Tensor:
    """A stable sort by column leaves the rows inside a column in increasing order."""
    raw, column = to_raw(self), columns(self)
    order = column.argsort(stable=True)
    values = stored(self)[order]
    if raw.pattern.turned_from is not None:
        return made(raw.pattern.turned_from, values)
    index = part(self, raw.col_indices).dtype
    crow = offsets(column, self.shape[1]).to(index).contiguous()
    col = rows(self)[order].to(index).contiguous()
    pattern = Pattern(to_raw(crow), to_raw(col), raw.shape[::-1], check=False)
    pattern.turned_from = raw.pattern
    return made(pattern, values)


def matmul(self: Any, other: Any) -> Tensor:
    """A sparse and a strided matrix or vector: gathered, multiplied, added by rows or columns."""
    right = sparse(other)
    pattern, dense = (other, self) if right else (self, other)
    if not sparse(pattern) or sparse(dense) or dense.ndim not in (1, 2):
        raise refused("matmul", self, other)
    if self.shape[-1] != other.shape[0]:
        raise ShapeError(
            f"the inner dimensions of {tuple(self.shape)} and {tuple(other.shape)} differ",
            fix="transpose one factor, or check the order of the factors",
        )
    dtype = common(stored(pattern), dense)
    values, dense = widened(stored(pattern), dtype), widened(dense, dtype)
    inner, outer = rows(pattern), columns(pattern)
    if not right:
        inner, outer = outer, inner
    dim = dense.ndim - 1 if right else 0
    terms = dense.index_select(dim, inner) * (
        values if right or dense.ndim == 1 else values[:, None]
    )
    size = list(dense.shape)
    size[dim] = pattern.shape[1 if right else 0]
    return terms.new_zeros(size).index_add(dim, outer, terms).to(dtype)


def sampled_matmul(self: Any, x: Any, y: Any) -> Tensor:
    """``x @ y`` at the places of sparse ``self``."""
    if not sparse(self) or sparse(x) or sparse(y):
        raise refused("sampled_matmul", self, x, y)
    dtype = common(x, y)
    left, right = widened(x, dtype)[rows(self)], widened(y, dtype).mT[columns(self)]
    return with_values(self, (left * right).sum(1).to(dtype))


def permute(self: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The transpose, or the tensor itself."""
    return transpose(self) if dims[0] % 2 else self


#: rows of sparse_csr on any backend
ANYWHERE: dict[str, Callable[..., Any]] = {
    "detach": lambda self: with_values(self, stored(self)),
    "clone": clone,
    "copy": copy,
    "add": add,
    "sub": sub,
    "zeros_like": zeros_like,
    "mul": scaled("mul"),
    "div": scaled("div"),
    "neg": elementwise("neg"),
    "conj": elementwise("conj"),
    "to_dtype": elementwise("to"),
    "permute": permute,
    "matmul": matmul,
    "csr_to_dense": to_dense,
    "csr_sample": sample,
    "csr_transpose": transpose,
    "csr_matmul": matmul,
    "csr_sampled_matmul": sampled_matmul,
    "csr_with_values": lambda self, values: with_values(self, values.clone()),
    "values": lambda self: stored(self).clone(),
    "crow_indices": lambda self: part(self, to_raw(self).crow_indices).clone(),
    "col_indices": lambda self: part(self, to_raw(self).col_indices).clone(),
}
