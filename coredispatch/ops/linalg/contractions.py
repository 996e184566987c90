"""Contractions, Kronecker and cross products, and products of chains of matrices."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from coredispatch._warnings import warn_once
from coredispatch.ops.linalg.products import NUMBERS, matmul, mm, products
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.shape.joining import alone, atleast_2d
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import conditioned, normalize_dim
from coredispatch.ops.support.rules import dot as dot_tolerance
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import (
    ALL_DTYPES,
    bool_,
    float32,
    promote_types,
)
from coredispatch.registry.model.errors import ArgumentError, OpError, ShapeError
from coredispatch.registry.model.value import dtype_of

__all__ = [
    "chain_matmul",
    "cross",
    "kron",
    "linalg_cross",
    "linalg_multi_dot",
    "tensordot",
    "trace",
]

#: what a cross product is of; the wide unsigned integers wrap, as the narrow one does in PyTorch
_NUMBERS = tuple(d for d in ALL_DTYPES if d is not bool_)


def _contracted(dims: Any, ndim_a: int, ndim_b: int) -> tuple[list[int], list[int]]:
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(ndim_a, ndim_b):
            raise ArgumentError(
                f"dims={dims} does not fit tensors with {ndim_a} and {ndim_b} dimensions",
                fix="use dims from 0 to the smaller number of dimensions",
            )
        return list(range(ndim_a - dims, ndim_a)), list(range(dims))
    if not isinstance(dims, (list, tuple)) or len(dims) != 2:
        raise OpError(
            f"dims={dims!r} is neither a number of dimensions nor a pair of lists",
            fix="use dims=2, or dims=([0, 1], [1, 0])",
        )
    first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(first) != len(second):
        raise ShapeError(
            f"dims {tuple(first)} and {tuple(second)} differ in length",
            fix="name as many dimensions in both",
        )
    return (
        [normalize_dim(d, ndim_a) for d in first],
        [normalize_dim(d, ndim_b) for d in second],
    )


def _tensordot_reference(self: Any, other: Any, dims: Any = 2) -> Any:
    # Not np.tensordot, which drops the NaN of NaN times 0 where an array has one element.
    first, second = _contracted(dims, self.ndim, other.ndim)
    left, right = list(range(self.ndim)), list(range(self.ndim, self.ndim + other.ndim))
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    kept = [d for d in left if d not in first] + [d for d in right if d >= self.ndim]
    return np.einsum(self, left, other, right, kept)


@composite(
    reference=_tensordot_reference,
    samples=lambda make: (
        Sample(make((3, 4, 5)), make((4, 5, 2))),
        Sample(make((3, 4)), make((4, 5)), 1),
        Sample(make((3,)), make((4,)), 0),
        Sample(make((3, 4, 5)), make((5, 3, 2)), ([0, 2], [1, 0])),
    ),
    cast="lower_cpu_widest_accelerated",
    tolerance=dot_tolerance,
    dtypes=NUMBERS,
)
def tensordot(self: Tensor, other: Tensor, dims: object = 2) -> Tensor:
    """Products summed over the last ``dims`` dimensions of ``self`` and the first of ``other``.

    ``dims`` may be a pair of lists: the dimensions of ``self`` and those of ``other``.
    """
    first, second = _contracted(dims, self.ndim, other.ndim)
    # As in PyTorch a length of 1 is contracted with any other: its partner is summed.
    for i, j in zip(first, second):
        if self.shape[i] == 1 and other.shape[j] != 1:
            other = lazy.sum(other, j, True, dtype=dtype_of(other))
        elif other.shape[j] == 1 and self.shape[i] != 1:
            self = lazy.sum(self, i, True, dtype=dtype_of(self))
    if any(self.shape[i] != other.shape[j] for i, j in zip(first, second)):
        raise ShapeError(
            f"the contracted lengths of {tuple(self.shape)} and {tuple(other.shape)} differ",
            fix="contract dimensions of equal length",
        )
    rest_a = [d for d in range(self.ndim) if d not in first]
    rest_b = [d for d in range(other.ndim) if d not in second]
    sizes = [*(self.shape[d] for d in rest_a), *(other.shape[d] for d in rest_b)]
    k, n = _size(self, first), _size(self, rest_a)
    a = shape.reshape(lazy.permute(self, tuple(rest_a + first)), (n, k))
    b = shape.reshape(lazy.permute(other, tuple(second + rest_b)), (k, _size(other, rest_b)))
    return shape.reshape(matmul(a, b), tuple(sizes))


def _size(x: Any, dims: Sequence[int]) -> int:
    size = 1
    for d in dims:
        size *= x.shape[d]
    return size


@composite(
    reference=np.kron,
    samples=products(((3,), (2,)), ((2, 3), (4, 2)), ((2, 3), (4,)), ((2, 1, 3), (2, 2))),
)
def kron(self: Tensor, other: Tensor) -> Tensor:
    """Kronecker product: ``self`` with each element multiplied by all of ``other``."""
    ndim = max(self.ndim, other.ndim)
    a = shape.reshape(self, (*(1,) * (ndim - self.ndim), *self.shape))
    b = shape.reshape(other, (*(1,) * (ndim - other.ndim), *other.shape))
    sizes = tuple(n * m for n, m in zip(a.shape, b.shape))
    a = shape.reshape(a, tuple(n for size in a.shape for n in (size, 1)))
    b = shape.reshape(b, tuple(n for size in b.shape for n in (1, size)))
    return shape.reshape(a * b, sizes)


@composite(
    reference=np.trace,
    samples=lambda make: (Sample(make(s)) for s in ((4, 4), (3, 5), (5, 3), (1, 1))),
    tolerance=dot_tolerance,
    dtypes=NUMBERS,
)
def trace(self: Tensor) -> Tensor:
    """Sum of the diagonal of a matrix, 0-dim."""
    if self.ndim != 2:
        raise ShapeError(
            f"trace takes a matrix, got {self.ndim} dimensions",
            fix="use diagonal(...).sum(-1) for stacks of matrices",
        )
    return lazy.sum(lazy.diagonal(self))


@composite(
    name="linalg_cross",
    reference=lambda self, other, *, dim=-1: np.cross(self, other, axis=dim),
    samples=products(((3,), (3,)), ((5, 3), (5, 3)), ((1, 3), (4, 3))),
    tolerance=conditioned,
    unbroadcast=True,
    namespace="linalg",
    method=False,
    takes=_NUMBERS,
    cast="widest_accelerated",
)
def linalg_cross(self: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross product of vectors of length 3 along ``dim``; the other dimensions broadcast.

    Computed in the next wider dtype, as the difference of two products loses digits.
    """
    if self.ndim != other.ndim:
        raise ShapeError(
            f"tensors with {self.ndim} and {other.ndim} dimensions do not fit",
            fix="give both the same number of dimensions",
        )
    d = normalize_dim(dim, self.ndim)
    if self.shape[d] != 3 or other.shape[d] != 3:
        raise ShapeError(
            f"a cross product needs length 3 along dim {dim}",
            fix="use vectors of 3 elements along dim",
        )
    # Both products may be much larger than their difference.
    wide = [_wider(x) for x in (self, other)]
    # u x v = u[1,2,0] * v[2,0,1] - u[2,0,1] * v[1,2,0]
    up = [lazy.movedim(lazy.roll(x, (-1,), (d,)), d, -1) for x in wide]
    down = [lazy.movedim(lazy.roll(x, (1,), (d,)), d, -1) for x in wide]
    out = lazy.movedim(up[0] * down[1] - down[0] * up[1], -1, d)
    return out.to_dtype(promote_types(self.dtype, other.dtype))


linalg_cross.vjp(
    self=lambda grad, other, dim: linalg_cross(adjoint(other), grad, dim=dim),
    other=lambda grad, self, dim: linalg_cross(grad, adjoint(self), dim=dim),
)


def _wider(x: Any) -> Any:
    """Half precision as float32, single precision as double where the device has it."""
    if x.dtype.category < 2:
        return x
    dtype = float32 if x.dtype.itemsize == 2 else widest(x)
    return x.to_dtype(dtype.to_complex() if x.dtype.is_complex else dtype)


def _cross_reference(self: Any, other: Any, dim: int | None = None) -> Any:
    return np.cross(self, other, axis=self.shape.index(3) if dim is None else dim)


@composite(
    reference=_cross_reference,
    samples=products(((3,), (3,)), ((5, 3), (5, 3))),
    tolerance=conditioned,
    takes=_NUMBERS,
)
def cross(self: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Cross product along ``dim``, by default the first dimension of length 3."""
    if dim is None:
        warn_once(
            "Using torch.cross without specifying the dim arg is deprecated.\n"
            "Please either pass the dim explicitly or simply use torch.linalg.cross.\n"
            "The default value of dim will change to agree with that of linalg.cross in a future "
            "release."
        )
        threes = [d for d, n in enumerate(self.shape) if n == 3]
        if not threes:
            raise ShapeError(
                f"no dimension of {tuple(self.shape)} has length 3",
                fix="name the dimension with dim=",
            )
        dim = threes[0]
    return linalg_cross(self, other, dim=dim)


# ---- chains -------------------------------------------------------------------------------------


def _best_split(sizes: Sequence[int]) -> list[list[int]]:
    """Where to split each part of a chain of matrices (Cormen et al., section 14.2)."""
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i][j], split[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return split


def _product(chain: list[Any], split: list[list[int]], i: int, j: int) -> Any:
    """The product of ``chain[i:j + 1]``, cut where ``split`` says. No closure: one that calls
    itself is a cycle, which would keep the tensors until the next garbage collection.
    """
    if i == j:
        return chain[i]
    k = split[i][j]
    return mm(_product(chain, split, i, k), _product(chain, split, k + 1, j))


@composite(
    name="linalg_multi_dot",
    reference=lambda tensors: np.linalg.multi_dot(tensors),
    samples=lambda make: (
        Sample([make((3, 4)), make((4, 2)), make((2, 5))]),
        Sample([make((4,)), make((4, 2)), make((2,))]),
    ),
    cast="lower",
    tolerance=dot_tolerance,
    namespace="linalg",
    dtypes=NUMBERS,
)
def linalg_multi_dot(tensors: list[Tensor]) -> Tensor:
    """Product of a chain of matrices in the order of least cost; the ends may be vectors."""
    items = list(tensors)
    if len(items) < 2:
        raise ArgumentError("a chain needs at least two tensors", fix="pass a list of two or more")
    row, column = items[0].ndim == 1, items[-1].ndim == 1
    chain = [atleast_2d(items[0]), *items[1:]]
    if column:
        chain[-1] = shape.unsqueeze(items[-1], 1)
    if any(x.ndim != 2 for x in chain):
        raise ShapeError(
            "only the ends of a chain may be vectors, the rest are matrices",
            fix="reshape the inner ones to matrices",
        )
    split = _best_split([*(x.shape[0] for x in chain), chain[-1].shape[1]])

    out = _product(chain, split, 0, len(chain) - 1)
    out = shape.squeeze(out, 0) if row else out
    return shape.squeeze(out, -1) if column else out


@composite(
    reference=lambda matrices: functools.reduce(np.matmul, matrices),
    samples=lambda make: (
        Sample([make((3, 4))]),
        Sample([make((3, 4)), make((4, 2))]),
        Sample([make((3, 4)), make((4, 2)), make((2, 5))]),
    ),
    tolerance=dot_tolerance,
)
def chain_matmul(matrices: list[Tensor]) -> Tensor:
    """Product of a chain of matrices; another name of ``linalg.multi_dot``."""
    warn_once(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. "
        "Use torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather "
        "than multiple parameters."
    )
    items = list(matrices)
    for x in items:
        if x.ndim != 2:
            raise ShapeError(
                f"chain_matmul takes matrices, got a tensor of shape {tuple(x.shape)}",
                fix="use linalg.multi_dot, which takes a vector at either end",
            )
    return items[0] if len(items) == 1 else linalg_multi_dot(items)


alone(chain_matmul)
