"""A layout of the self-test's own, so that faults of *order* and of *repeats* have a place.

``sparse_csr`` refuses both. ``coordinates`` takes both: each stored value has a column of indices,
in any order, and values with the same indices add up, as in PyTorch's uncoalesced tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import (
    ArgumentError,
    DimError,
    DType,
    Layout,
    MissingKernel,
    Sample,
    ShapeError,
    Tensor,
    hookimpl,
    laid_out,
    numpy_dtype,
    primitive,
    rules,
    tolerance,
)

__all__ = ["NAME", "Coordinates", "kept_axes", "loaded", "places", "rising", "settled"]

#: the name of the layout, and so of its profile
NAME = "coordinates"


class Coordinates:
    """Raw data: ``indices`` ``(ndim, n)`` and ``values`` ``(n,)``.

    ``coalesced`` says that they stand in order, and each place comes once.
    """

    def __init__(self, indices: Any, values: Any, shape: Any, coalesced: bool) -> None:
        self.indices, self.values = indices, values
        self.shape, self.coalesced = tuple(shape), coalesced

    ndim = property(lambda self: len(self.shape))
    dtype = property(lambda self: self.values.dtype)

    def astype(self, dtype: Any) -> Coordinates:
        """The same elements of another dtype."""
        return self.with_values(self.values.astype(numpy_dtype(DType.of(dtype))))

    def with_values(self, values: Any) -> Coordinates:
        """The same places with other values."""
        return Coordinates(self.indices, values, self.shape, self.coalesced)


def places(raw: Coordinates) -> np.ndarray:
    """The number of each element's place, counted row by row."""
    return np.ravel_multi_index(tuple(raw.indices), raw.shape) if raw.ndim else raw.indices.sum(0)


def rising(raw: Coordinates) -> bool:
    """Whether the elements stand in order, each place once."""
    return not raw.values.size or bool((np.diff(places(raw)) > 0).all())


def settled(raw: Coordinates) -> Coordinates:
    """The same tensor in order, each place once, with the sums of what was stored there."""
    if raw.coalesced or not raw.values.size:
        return raw
    at, which = np.unique(places(raw), return_inverse=True)
    values = np.zeros(at.shape, raw.dtype)
    np.add.at(values, which, raw.values)
    return Coordinates(np.array(np.unravel_index(at, raw.shape)), values, raw.shape, True)


# ---- the way in and the way out ---------------------------------------------------------------


def _arrays(make: Any) -> Iterator[Sample]:
    for shape in ((3,), (4, 5), (2, 3, 4)):
        yield Sample(np.where(make(shape) > 0, make(shape), 0).astype(make.dtype))


def _marked(make: Any) -> Iterator[Sample]:
    for sample in _arrays(make):
        yield Sample(laid_out(sample.args[0], NAME))


@primitive(
    out=rules.same_shape,
    dtype=rules.same,
    namespace=(),
    samples=_arrays,
    reference=lambda self: laid_out(self, NAME),
    tolerance=tolerance.exact,
    differentiable=False,
)
def to_coordinates(self: Tensor) -> Tensor:
    """The elements that are not zero, each with its indices."""


@primitive(
    out=rules.same_shape,
    dtype=rules.same,
    namespace=(),
    samples=_marked,
    reference=lambda self: np.array(self, subok=False),
    tolerance=tolerance.exact,
    differentiable=False,
)
def coordinates_to_dense(self: Tensor) -> Tensor:
    """The strided tensor, with the sum of what is stored for each place."""


def from_dense(self: Any) -> Coordinates:
    """Kernel of :func:`to_coordinates`."""
    if not self.ndim:
        raise ShapeError("a coordinates tensor has dimensions", fix="reshape it to (1,)")
    found = np.nonzero(self)
    return Coordinates(np.array(found), self[found], self.shape, True)


def to_dense(self: Coordinates) -> np.ndarray:
    """Kernel of :func:`coordinates_to_dense`."""
    out = np.zeros(self.shape, self.dtype)
    if self.coalesced:  # an assignment is faster where each place comes once
        out[tuple(self.indices)] = self.values
    else:
        np.add.at(out, tuple(self.indices), self.values)
    return out


def pack(raw: Coordinates) -> dict[str, Any]:
    """The parts as they are saved."""
    return {
        "indices": raw.indices,
        "values": raw.values,
        "size": list(raw.shape),
        "coalesced": raw.coalesced,
    }


def unpack(parts: dict[str, Any]) -> Coordinates:
    """What :func:`pack` took apart, checked."""
    raw = Coordinates(parts["indices"], parts["values"], parts["size"], bool(parts["coalesced"]))
    check(raw)
    return raw


def check(raw: Coordinates) -> None:
    """Raise for indices outside, and for elements out of order that claim to be in order."""
    outside = (raw.indices < 0) | (raw.indices >= np.array(raw.shape)[:, None])
    if outside.any():
        column = raw.indices[:, outside.any(0)][:, 0].tolist()
        raise DimError(f"the indices {column} lie outside the shape {raw.shape}")
    if raw.coalesced and not rising(raw):
        k = int(np.flatnonzero(np.diff(places(raw)) <= 0)[0])
        pair = raw.indices[:, k : k + 2].T.tolist()
        raise ArgumentError(
            f"coalesced, but the element at {pair[1]} follows that at {pair[0]}",
            fix="say coalesced=False",
        )


# ---- kernels ----------------------------------------------------------------------------------


def _both(a: Any, b: Any) -> bool:
    return isinstance(a, Coordinates) and isinstance(b, Coordinates) and a.shape == b.shape


def add(self: Any, other: Any) -> Coordinates:
    """The elements of both, one after another."""
    if not _both(self, other):
        raise MissingKernel("a coordinates tensor is added to one of its shape only")
    indices = np.concatenate([self.indices, other.indices], 1)
    values = np.concatenate([self.values, other.values])
    return Coordinates(indices, values, self.shape, False)


def mul(self: Any, other: Any) -> Coordinates:
    """The product with a number, or with a tensor at the places that both store."""
    if not isinstance(self, Coordinates):
        self, other = other, self
    if not isinstance(other, Coordinates) and not np.ndim(other):
        return self.with_values((self.values * other).astype(self.dtype, copy=False))
    if not _both(self, other):
        raise MissingKernel("a coordinates tensor is multiplied with one of its shape only")
    self, other = settled(self), settled(other)
    _, a, b = np.intersect1d(places(self), places(other), return_indices=True)
    return Coordinates(self.indices[:, a], self.values[a] * other.values[b], self.shape, True)


def matmul(self: Any, other: Any) -> np.ndarray:
    """The product of a matrix in coordinates with a strided vector or matrix."""
    fits = isinstance(self, Coordinates) and isinstance(other, np.ndarray) and self.ndim == 2
    if not fits or other.ndim not in (1, 2) or other.shape[0] != self.shape[1]:
        raise MissingKernel("a coordinates matrix times a strided vector or matrix only")
    rows, columns = self.indices
    terms = (self.values * other[columns].T).T
    out = np.zeros((self.shape[0], *other.shape[1:]), terms.dtype)
    np.add.at(out, rows, terms)
    return out


def kept_axes(raw: Coordinates, dim: Any) -> tuple[int, ...]:
    """The axes that a reduction over ``dim`` leaves."""
    dims = (dim,) if isinstance(dim, int) else dim
    gone = {d % raw.ndim for d in dims} if dims else set(range(raw.ndim))
    return tuple(d for d in range(raw.ndim) if d not in gone)


def _reduced(raw: Coordinates, dim: Any, out: np.ndarray, by: np.ufunc) -> np.ndarray:
    kept = kept_axes(raw, dim)
    by.at(out, tuple(raw.indices[d] for d in kept) or (np.zeros(raw.values.size, int),), raw.values)
    return out


def _blank(raw: Coordinates, dim: Any, value: float) -> np.ndarray:
    return np.full([raw.shape[d] for d in kept_axes(raw, dim)] or [1], value, raw.dtype)


def _shaped(raw: Coordinates, dim: Any, keepdim: bool, out: np.ndarray) -> np.ndarray:
    kept = kept_axes(raw, dim)
    if keepdim:
        return out.reshape([n if d in kept else 1 for d, n in enumerate(raw.shape)])
    return out.reshape([raw.shape[d] for d in kept])


def total(self: Coordinates, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The sum over ``dim``, strided."""
    if dtype is not None:
        raise MissingKernel("the sum of a coordinates tensor has its dtype")
    return _shaped(self, dim, keepdim, _reduced(self, dim, _blank(self, dim, 0), np.add))


def largest(self: Coordinates, dim: Any = (), keepdim: bool = False) -> Any:
    """The largest element over ``dim``, strided; what is not stored is 0."""
    if 0 in self.shape:
        raise MissingKernel("the maximum of no elements")
    self = settled(self)
    out = _reduced(self, dim, _blank(self, dim, -np.inf), np.maximum)
    counted = self.with_values(np.ones_like(self.values))
    counts = _reduced(counted, dim, _blank(self, dim, 0), np.add)
    full = np.prod(self.shape) // max(1, np.prod(np.shape(_shaped(self, dim, False, out))))
    return _shaped(self, dim, keepdim, np.where(counts < full, np.maximum(out, 0), out))


def absolute(self: Coordinates) -> Coordinates:
    """The magnitudes of the sums: those of what was stored would add up to more."""
    self = settled(self)
    return self.with_values(np.abs(self.values))


def permute(self: Coordinates, dims: Any) -> Coordinates:
    """The same elements, with their indices in another order."""
    order = [d % self.ndim for d in dims]
    if sorted(order) != list(range(self.ndim)):
        raise DimError(f"dims {dims} of a {self.ndim}-d tensor", fix="name each dimension once")
    turned = Coordinates(self.indices[order], self.values, [self.shape[d] for d in order], False)
    turned.coalesced = self.coalesced and rising(turned)
    return turned


def copy(self: Any, src: Any, *_: Any) -> Coordinates:
    """``src`` in the place of ``self``."""
    if not _both(self, src):
        raise MissingKernel("a coordinates tensor is copied into one of its shape only")
    return src.astype(self.dtype)


KERNELS = {
    "coordinates_to_dense": to_dense,
    "detach": lambda self: self,
    "clone": lambda self, *_: self.with_values(self.values.copy()),
    "copy": copy,
    "permute": permute,
    "neg": lambda self: self.with_values(-self.values),
    "abs": absolute,
    "add": add,
    "mul": mul,
    "matmul": matmul,
    "sum": total,
    "amax": largest,
}


def thinned(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array with zeros."""
    return np.where(rng.random(array.shape) < 0.6, array, np.zeros((), array.dtype))


@contextmanager
def loaded() -> Iterator[None]:
    """The layout, loaded inside the block."""

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.op(to_coordinates, coordinates_to_dense)
        registrar.kernels("cpu", {"to_coordinates": from_dense})
        registrar.layout(
            Layout(
                NAME,
                data_type=Coordinates,
                kernels_for={"cpu": KERNELS},
                pack=pack,
                unpack=lambda parts: unpack(parts),  # looked up at each call: faults replace it
                takes=("unsorted", "duplicates"),
                from_dense=to_coordinates,
                to_dense=coordinates_to_dense,
                representable=thinned,
            )
        )

    module = ModuleType("conformance_coordinates")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("conformance_coordinates", module)
    try:
        yield
    finally:
        cd.plugins.unload("conformance_coordinates")
