"""A layout that is not closed under reversal: lower triangles, packed row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coredispatch.plugin import (
    ArgumentError,
    DType,
    Layout,
    Sample,
    Tensor,
    hookimpl,
    laid_out,
    numpy_dtype,
    primitive,
    rules,
    to_raw,
    tolerance,
)


class Lower:
    """The elements of a square matrix on and below its diagonal, row by row."""

    ndim = 2

    def __init__(self, values: np.ndarray, n: int) -> None:
        self.values, self.n, self.shape, self.dtype = values, n, (n, n), values.dtype

    def astype(self, dtype: Any) -> Lower:
        return Lower(self.values.astype(numpy_dtype(DType.of(dtype))), self.n)


def unpacked(raw: Lower) -> np.ndarray:
    out = np.zeros(raw.shape, raw.dtype)
    out[np.tril_indices(raw.n)] = raw.values
    return out


def packed(array: np.ndarray) -> Lower:
    if array.ndim != 2 or array.shape[0] != array.shape[1] or np.triu(array, 1).any():
        raise ArgumentError("not a lower triangular matrix", fix="give x.tril()")
    return Lower(array[np.tril_indices(len(array))].copy(), len(array))


def matrices(make: Any) -> Iterator[Sample]:
    for n in (1, 4, 9, 0):
        yield Sample(np.tril(make((n, n))))


def triangles(make: Any) -> Iterator[Sample]:
    for sample in matrices(make):
        yield Sample(laid_out(sample.args[0], "lower"))


@primitive(
    out=rules.same_shape,
    dtype=rules.same,
    namespace=(),
    samples=matrices,
    reference=lambda self: laid_out(self, "lower"),
    tolerance=tolerance.exact,
    gradcheck=lambda self: lower_to_dense(to_lower(self.tril())),
)
def to_lower(self: Tensor) -> Tensor:
    """A lower triangular matrix, packed."""


@primitive(
    out=rules.same_shape,
    dtype=rules.same,
    namespace=(),
    samples=triangles,
    reference=lambda self: np.array(self, subok=False),
    tolerance=tolerance.exact,
)
def lower_to_dense(self: Tensor) -> Tensor:
    """The strided matrix of a packed one."""


@to_lower.vjp
def _(grad: Any) -> Any:
    return lower_to_dense(grad) if isinstance(to_raw(grad), Lower) else grad.tril()


@lower_to_dense.vjp
def _(grad: Any) -> Any:
    return to_lower(grad.tril())


def copy(self: Any, src: Any, *_: Any) -> Any:
    return src.astype(self.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "lower_to_dense": unpacked,
    "clone": lambda self, *_: Lower(self.values.copy(), self.n),
    "detach": lambda self: self,
    "copy": copy,
}


def plugin(representable: Any) -> type:
    """The layout as a plugin, with or without a word about what it holds."""

    class Triangles:
        @staticmethod
        @hookimpl
        def coredispatch_register(registrar: Any) -> None:
            registrar.op(to_lower, lower_to_dense)
            registrar.kernels("cpu", {"to_lower": packed})
            registrar.layout(
                Layout(
                    "lower",
                    data_type=Lower,
                    kernels_for={"cpu": KERNELS},
                    from_dense=to_lower,
                    to_dense=lower_to_dense,
                    representable=representable,
                )
            )

    return Triangles


def triangle(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The lower triangle of a matrix."""
    return np.tril(array) if array.ndim == 2 else array
