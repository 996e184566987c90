"""Several tensors made into one, or brought to one shape."""

from __future__ import annotations

from itertools import combinations as _combinations
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from coredispatch._warnings import warn_once
from coredispatch.ops.creation import copying
from coredispatch.ops.shape import reshaping as shape
from coredispatch.ops.shape import slicing
from coredispatch.ops.shape.rules import joined, joins, same_joins, stacked
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import broadcast_shapes, exact, normalize_dim, promote
from coredispatch.ops.support.samples import Sample, unary
from coredispatch.registry import Operator, composite, primitive
from coredispatch.registry.model.errors import ArgumentError, ShapeError
from coredispatch.registry.model.sizes import as_size

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block_diag",
    "broadcast_tensors",
    "cartesian_prod",
    "cat",
    "column_stack",
    "combinations",
    "concat",
    "dstack",
    "hstack",
    "meshgrid",
    "stack",
    "vstack",
]


@primitive(
    out=joined,
    dtype=promote,
    reference=lambda tensors, dim=0: np.concatenate(tensors, dim),
    samples=joins,
    errors=lambda make: [
        (Sample([make((3, 5)), make((3, 4))], 0), ShapeError),
        (Sample([make(()), make(())], 0), ShapeError),
    ],
    cast="widest",
    tolerance=exact,
    unbroadcast=False,
)
def cat(tensors: list[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along ``dim``; their dtypes promote.

    All other lengths must agree; tensors of shape (0,) are passed over. Raises
    :class:`ShapeError`.
    """


@cat.vjp
def _(grad, tensors_shape, dim):
    filled = [s for s in tensors_shape if tuple(s) != (0,)] or tensors_shape
    d = normalize_dim(dim, len(filled[0]))
    start, grads = 0, list[Any]()
    for sizes in tensors_shape:
        length = sizes[d] if len(sizes) > d else 0
        if tuple(sizes) == (0,) and grad.ndim > 1:
            grads.append(None)
            continue
        # A default argument: each lambda keeps its own place.
        grads.append(lambda a=start, n=length: slicing.narrow(grad, d, a, n))
        start += length
    return grads


@composite(
    name="concat",
    alias=("concatenate",),
    reference=lambda tensors, dim=0: np.concatenate(tensors, dim),
    samples=joins,
    tolerance=exact,
)
def concat(tensors: list[Tensor], dim: int = 0) -> Tensor:
    """Another name of :func:`cat`."""
    return cat(tensors, dim)


@composite(
    out=stacked,
    dtype=promote,
    reference=lambda tensors, dim=0: np.stack(tensors, dim),
    samples=same_joins,
    errors=lambda make: [(Sample([make((3,)), make((4,))], 0), ShapeError)],
    cast="widest",
    tolerance=exact,
    unbroadcast=False,
)
def stack(tensors: list[Tensor], dim: int = 0) -> Tensor:
    """The tensors, of one shape, side by side along a new dimension ``dim``."""
    stacked(tensors, dim)
    return cat([shape.unsqueeze(x, dim) for x in tensors], dim)


@stack.vjp
def _(grad, tensors_shape, dim):
    d = normalize_dim(dim, len(tensors_shape[0]) + 1)
    count = range(len(tensors_shape))
    return [lambda i=i: slicing.select(grad, d, i) for i in count]


# ---- at least so many dimensions ----------------------------------------------------------------


@composite(
    view="maybe",
    reference=np.atleast_1d,
    samples=unary,
    tolerance=exact,
    method=False,
)
def atleast_1d(self: Tensor) -> Tensor:
    """``self``, with one dimension if it has none."""
    return self if self.ndim else shape.view(self, (1,))


@composite(
    view="maybe",
    reference=np.atleast_2d,
    samples=unary,
    tolerance=exact,
    method=False,
)
def atleast_2d(self: Tensor) -> Tensor:
    """``self``, with dimensions of length 1 put in front up to 2."""
    return self if self.ndim >= 2 else shape.view(self, (1,) * (2 - self.ndim) + (*self.shape,))


@composite(
    view="maybe",
    reference=np.atleast_3d,
    samples=unary,
    tolerance=exact,
    method=False,
)
def atleast_3d(self: Tensor) -> Tensor:
    """``self`` with 3 dimensions or more: (1, n, 1) of a vector, (n, m, 1) of a matrix."""
    if self.ndim >= 3:
        return self
    if self.ndim == 2:
        return shape.unsqueeze(self, -1)
    return shape.view(self, (1, self.numel(), 1))


def _each(op: Operator) -> None:
    @op.overload
    def _(tensors: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(op(x) for x in tensors)


_each(atleast_1d)
_each(atleast_2d)
_each(atleast_3d)


@composite(
    reference=lambda tensors: np.hstack(tensors),
    samples=lambda make: (
        Sample([make(()), make(())]),
        Sample([make((3,)), make((2,))]),
        Sample([make((3, 2)), make((3, 4))]),
    ),
    tolerance=exact,
)
def hstack(tensors: list[Tensor]) -> Tensor:
    """Joined along dimension 1; vectors along dimension 0."""
    tensors = [atleast_1d(x) for x in tensors]
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


@composite(
    reference=lambda tensors: np.vstack(tensors),
    samples=lambda make: (
        Sample([make((3,)), make((3,))]),
        Sample([make((1, 3)), make((4, 3))]),
    ),
    tolerance=exact,
    alias=("row_stack",),
)
def vstack(tensors: list[Tensor]) -> Tensor:
    """Joined along dimension 0; vectors are rows."""
    return cat([atleast_2d(x) for x in tensors], 0)


@composite(
    reference=lambda tensors: np.dstack(tensors),
    samples=lambda make: (
        Sample([make((3,)), make((3,))]),
        Sample([make((2, 3)), make((2, 3))]),
    ),
    tolerance=exact,
)
def dstack(tensors: list[Tensor]) -> Tensor:
    """Joined along dimension 2."""
    return cat([atleast_3d(x) for x in tensors], 2)


@composite(
    reference=lambda tensors: np.column_stack(tensors),
    samples=lambda make: (
        Sample([make((3,)), make((3,))]),
        Sample([make((3, 2)), make((3,))]),
    ),
    tolerance=exact,
)
def column_stack(tensors: list[Tensor]) -> Tensor:
    """Joined along dimension 1; vectors and 0-dim tensors are columns."""
    return hstack([shape.reshape(x, (x.numel(), 1)) if x.ndim < 2 else x for x in tensors])


# ---- one shape ----------------------------------------------------------------------------------


@composite(
    reference=lambda tensors: np.broadcast_arrays(*tensors),
    samples=lambda make: (
        Sample([make(shape) for shape in shapes])
        for shapes in (((3, 1), (5,)), ((2, 3), ()), ((0, 3), (1, 1), (3,)), ((4,),))
    ),
    tolerance=exact,
    view={None: "tensors"},
)
def broadcast_tensors(tensors: list[Tensor]) -> tuple[Tensor, ...]:
    """The tensors expanded to their common shape; those that have it as they are.

    Raises :class:`ShapeError`.
    """
    items = list(tensors)
    common = broadcast_shapes(tuple(x.shape) for x in items)
    return tuple(x if tuple(x.shape) == common else shape.expand(x, common) for x in items)


def alone(op: Operator) -> None:
    """Let ``f(a)`` mean ``f([a])``, where ``f(a, b)`` means ``f([a, b])``."""

    @op.overload
    def _(tensor: Tensor) -> Tensor:
        return op([tensor])


alone(broadcast_tensors)


@composite(
    reference=lambda tensors, *, indexing=None: list(
        np.meshgrid(*tensors, indexing=indexing or "ij")
    ),
    samples=lambda make: (
        Sample([make((3,))]),
        Sample([make((3,)), make((4,))]),
        Sample([make((3,)), make((4,)), make(())], indexing="xy"),
    ),
    tolerance=exact,
)
def meshgrid(tensors: list[Tensor], *, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids: result i holds ``tensors[i]`` along dimension i, repeated for all lengths.

    With ``indexing="xy"`` the first two dimensions are swapped; "ij" is the default. Raises
    :class:`ShapeError` for tensors of more than one dimension.
    """
    items = list(tensors)
    if indexing is None:
        warn_once(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
            "argument."
        )
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"indexing={indexing!r} is not known", fix="use 'ij' or 'xy'")
    if any(x.ndim > 1 for x in items):
        raise ShapeError("meshgrid takes vectors and 0-dim tensors", fix="flatten them first")
    sizes = tuple(x.numel() for x in items)
    grids = [
        shape.expand(shape.reshape(x, tuple(-1 if j == i else 1 for j in range(len(items)))), sizes)
        for i, x in enumerate(items)
    ]
    if indexing == "xy" and len(items) > 1:
        grids = [lazy.transpose(x, 0, 1) for x in grids]
    return tuple(copying.clone(x, memory_format="contiguous_format") for x in grids)


@meshgrid.overload
def _(tensor: Tensor, *, indexing: str | None = None) -> tuple[Tensor, ...]:
    return meshgrid([tensor], indexing=indexing)


@composite(
    reference=lambda tensors: np.stack(
        [x.reshape(-1) for x in np.meshgrid(*tensors, indexing="ij")], 1
    ),
    samples=lambda make: (
        Sample([make((3,)), make((4,))]),
        Sample([make((2,)), make((3,)), make((2,))]),
    ),
    tolerance=exact,
)
def cartesian_prod(tensors: list[Tensor]) -> Tensor:
    """All combinations of one element of each vector, (n1 * n2 * ..., number of vectors)."""
    items = list(tensors)
    for x in items:
        if x.ndim != 1:
            raise ShapeError(
                f"cartesian_prod takes vectors, got a tensor of shape {tuple(x.shape)}",
                fix="reshape it with reshape(-1)",
            )
    if len(items) == 1:
        return items[0]
    return stack([shape.reshape(x, (-1,)) for x in meshgrid(items, indexing="ij")], 1)


alone(cartesian_prod)


def _block_diag_reference(tensors: Any) -> Any:
    blocks = [np.atleast_2d(x) for x in tensors]
    height, width = (sum(x.shape[i] for x in blocks) for i in (0, 1))
    out, row, column = np.zeros((height, width), blocks[0].dtype), 0, 0
    for x in blocks:
        out[row : row + x.shape[0], column : column + x.shape[1]] = x
        row, column = row + x.shape[0], column + x.shape[1]
    return out


@composite(
    reference=_block_diag_reference,
    samples=lambda make: (
        Sample([make((2, 2)), make((1, 3))]),
        Sample([make(()), make((3,)), make((2, 1))]),
    ),
    tolerance=exact,
)
def block_diag(tensors: list[Tensor]) -> Tensor:
    """A matrix with the tensors (of at most 2 dimensions) as blocks on its diagonal."""
    blocks = [atleast_2d(x) for x in tensors]
    if any(x.ndim > 2 for x in blocks):
        raise ShapeError(
            "block_diag takes tensors of at most 2 dimensions",
            fix="use tensors with at most 2 dimensions",
        )
    width, before, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        height, own = x.shape
        left = x.new_zeros((height, before))
        right = x.new_zeros((height, width - before - own))
        rows.append(cat([left, x, right], 1))
        before += own
    return cat(rows, 0)


alone(block_diag)


@composite(
    reference=lambda self, r=2, with_replacement=False: np.array(
        list((combinations_with_replacement if with_replacement else _combinations)(self, r)),
        self.dtype,
    ).reshape(-1, r),
    samples=lambda make: (Sample(make((4,))), Sample(make((5,)), 3), Sample(make((2,)), 2)),
    tolerance=exact,
)
def combinations(self: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of ``r`` elements of a vector, (count, r), in order of position."""
    if self.ndim != 1:
        raise ShapeError(
            f"combinations takes a vector, got {self.ndim} dimensions",
            fix="reshape it with reshape(-1)",
        )
    r = as_size(r, "r")
    pick = combinations_with_replacement if with_replacement else _combinations
    places = [list(c) for c in pick(range(len(self)), r)]
    if r == 0:
        return self.new_empty((0,))  # as in PyTorch
    if not places:
        return self.new_empty((0, r))
    return self[places]
