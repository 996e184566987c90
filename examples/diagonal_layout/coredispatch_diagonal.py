"""A layout by a third party: square matrices of which only the diagonal is stored."""

from __future__ import annotations

import numpy as np

from coredispatch.plugin import (
    ArgumentError,
    DType,
    Layout,
    MissingKernel,
    Sample,
    Tensor,
    from_raw,
    hookimpl,
    laid_out,
    numpy_dtype,
    primitive,
    rules,
    to_raw,
    tolerance,
)


class Diagonal:
    """The raw data of a diagonal tensor. coredispatch asks for ``shape``, ``dtype``, ``astype``."""

    ndim = 2

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, (values.shape[0],) * 2, values.dtype

    def astype(self, dtype):
        return Diagonal(self.values.astype(numpy_dtype(DType.of(dtype))))


# ---- the operators that lead in and out, with samples, references and tolerances --------------


def matrices(make):
    for n in (1, 4, 17, 0):
        yield Sample(np.diag(make((n,))))


def marked(make):
    for sample in matrices(make):
        yield Sample(laid_out(sample.args[0], "diagonal"))


def cut(tensor):
    """The matrix with zeros off the diagonal."""
    return tensor.diagonal().diag_embed()


@primitive(
    out=rules.same_shape, dtype=rules.same, namespace=(), samples=matrices,
    reference=lambda self: laid_out(self, "diagonal"), tolerance=tolerance.exact,
    gradcheck=lambda self: diagonal_to_dense(to_diagonal(cut(self))),
)  # fmt: skip
def to_diagonal(self: Tensor) -> Tensor:
    """A square matrix as a diagonal tensor; refused where it has other elements."""


@primitive(
    out=rules.same_shape, dtype=rules.same, namespace=(), samples=marked,
    reference=lambda self: np.array(self, subok=False), tolerance=tolerance.exact,
)  # fmt: skip
def diagonal_to_dense(self: Tensor) -> Tensor:
    """The strided matrix that a diagonal tensor stands for."""


@to_diagonal.vjp
def _(grad):
    return diagonal_to_dense(grad) if isinstance(to_raw(grad), Diagonal) else cut(grad)


@diagonal_to_dense.vjp
def _(grad):
    return to_diagonal(cut(grad))


# ---- kernels, on Diagonal and NumPy's arrays in whatever mixture a call has -------------------


def from_dense(self):
    if (
        self.ndim != 2
        or self.shape[0] != self.shape[1]
        or self[~np.eye(len(self), dtype=bool)].any()
    ):
        raise ArgumentError("not a diagonal matrix", fix="give a square matrix, zero elsewhere")
    return Diagonal(np.diag(self).copy())


def matmul(self, other):
    kinds = isinstance(self, Diagonal), isinstance(other, Diagonal)
    if kinds == (True, True) and self.shape == other.shape:
        return Diagonal(self.values * other.values)
    if kinds == (True, False) and other.ndim <= 2 and len(other) == len(self.values):
        return (self.values * other.T).T
    if kinds == (False, True) and self.ndim <= 2 and self.shape[-1] == len(other.values):
        return self * other.values
    raise MissingKernel(f"no diagonal kernel multiplies {self.shape} and {other.shape}")


def copy(self, src, *_):
    if not (isinstance(self, Diagonal) and isinstance(src, Diagonal) and self.shape == src.shape):
        raise MissingKernel("a diagonal tensor is copied into a diagonal one of its shape only")
    return src.astype(self.dtype)


KERNELS = {
    "diagonal_to_dense": lambda self: np.diag(self.values),
    "matmul": matmul,
    "neg": lambda self: Diagonal(-self.values),
    "clone": lambda self, *_: Diagonal(self.values.copy()),
    "detach": lambda self: self,
    "copy": copy,
    "permute": lambda self, dims: self,
}


# ---- rows for every other backend, made of core operators: they see tensors ------------------


def part(tensor):
    """The diagonal as a strided tensor, on the device of ``tensor``."""
    return from_raw(to_raw(tensor).values, keys_like=tensor)


def rewrapped(tensor, values):
    return from_raw(Diagonal(to_raw(values)), keys_like=tensor, layout="diagonal")


ANYWHERE = {
    "detach": lambda self: rewrapped(self, part(self)),
    "clone": lambda self, *_: rewrapped(self, part(self).clone()),
    "diagonal_to_dense": lambda self: part(self).diag(),
}


# ---- what only this layout can be asked, and the registration ---------------------------------


def needs_less(case):
    """A thousand rows take a thousand numbers, not a million."""
    raw = to_raw(to_diagonal(case.tensor(np.diag(case.rng.random(1000)))))
    case.expect(raw.values.nbytes == 8000, f"{raw.values.nbytes} bytes are stored")


class Conformance:
    CASES = {"needs-less": needs_less}


@hookimpl
def coredispatch_conformance():
    return Conformance


@hookimpl
def coredispatch_register(registrar):
    registrar.op(to_diagonal, diagonal_to_dense)
    registrar.kernels("cpu", {"to_diagonal": from_dense})
    registrar.layout(
        Layout(
            "diagonal",
            data_type=Diagonal,
            kernels_for={"cpu": KERNELS},
            pack=lambda raw: {"values": raw.values},
            unpack=lambda parts: Diagonal(parts["values"]),
            from_dense=to_diagonal,
            to_dense=diagonal_to_dense,
            representable=lambda array, rng: np.diag(np.diag(array)) if array.ndim == 2 else array,
        )
    )
    registrar.kernels("diagonal", ANYWHERE, boxed=True)
