"""The transform that backends supply, those of real input and output, and their derivatives.

A transform is linear, so its derivative is its adjoint: the transform in the other direction with
the scale of this one. Gradients of what a symmetric spectrum leaves out are added to what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import normalize_dim, real_like, require_one_of, same, transform
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite, primitive
from coredispatch.registry.model.dtypes import (
    DType,
    complex64,
    complex128,
    default_dtype,
    float32,
    float64,
)
from coredispatch.registry.model.errors import DimError, DTypeError, OpError

__all__ = [
    "NORMS",
    "OTHER",
    "checked_dims",
    "fft_c2c",
    "fft_c2r",
    "fft_r2c",
    "require_dimensions",
    "transformed_dtype",
]

NORMS = ("backward", "ortho", "forward")
COMPLEX = (complex64, complex128)
#: the norm with which the transform in the other direction has the same scale
OTHER = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def transformed_dtype(x: Any) -> DType:
    """The dtype of ``x`` as a transform computes with it: integers become the default float.

    Raises :class:`DTypeError` for half precision, which is not transformed.
    """
    dtype = DType.of(x.dtype)
    dtype = default_dtype() if dtype.category < 2 else dtype
    if dtype not in (float32, float64, *COMPLEX):
        raise DTypeError(f"Unsupported dtype {dtype}", fix="convert with x.float()")
    return dtype


def require_dimensions(x: Any, dim: Sequence[int]) -> None:
    """Raise :class:`DimError` where ``dim`` names dims of a 0-dim tensor."""
    if dim and not x.shape:
        raise DimError(
            f"Dimension specified as {dim[0]} but tensor has no dimensions", fix="use x[None], 1-d"
        )


def checked_dims(x: Any, dim: Sequence[int]) -> tuple[int, ...]:
    """``dim`` counted from the front; each once, none of them empty."""
    if not dim:
        raise OpError("a transform needs at least one dimension", fix="name it in dim=")
    require_dimensions(x, dim)
    dims = tuple([normalize_dim(d, len(x.shape)) for d in dim])
    if len({*dims}) != len(dims):
        raise DimError(f"FFT dims must be unique, got {tuple(dim)}", fix="name each once")
    for d in dims:
        if x.shape[d] < 1:
            raise OpError(
                f"Invalid number of data points ({x.shape[d]}) specified along dimension {d}",
                fix="give the transform at least one element, or a length n",
            )
    return dims


def _c2c_shape(self: Any, dim: Sequence[int], norm: str, forward: bool = True) -> Any:
    require_one_of("norm", norm, NORMS)
    checked_dims(self, dim)
    return tuple(self.shape)


def _planes(make: Any) -> Iterator[tuple[Any, tuple[int, ...]]]:
    for shape, dim in (
        ((1,), (0,)),
        ((8,), (-1,)),
        ((5, 4), (0,)),
        ((3, 5), (-1,)),
        ((4, 6), (0, 1)),
        ((2, 3, 5), (2, 0)),
        ((0, 3), (1,)),
    ):
        yield make(shape), dim


def _both_ways(make: Any) -> Iterator[Sample]:
    for i, (x, dim) in enumerate(_planes(make)):
        yield Sample(x, dim, NORMS[i % 3], bool(i % 2))
        yield Sample(x, dim, NORMS[(i + 1) % 3], not i % 2)


def _c2c_reference(self: Any, dim: Any, norm: Any, forward: bool = True) -> Any:
    return (np.fft.fftn if forward else np.fft.ifftn)(self, axes=dim, norm=norm)


@primitive(
    cast="float32",
    out=_c2c_shape,
    dtype=same,
    reference=_c2c_reference,
    samples=_both_ways,
    takes=COMPLEX,
    tolerance=transform,
    namespace=(),
    method=False,
)
def fft_c2c(self: Tensor, dim: IntList, norm: str, forward: bool = True) -> Tensor:
    """Discrete Fourier transform of a complex tensor over the dims ``dim``, or its inverse.

    ``sum_n x[n] exp(-2 pi i k n / N)`` along each dim, with ``+`` backward; scaled by 1/N in the
    direction that ``norm`` names, by 1/sqrt(N) for ``"ortho"``.
    """


@fft_c2c.vjp
def _(grad, dim, norm, forward):
    return fft_c2c(grad, dim, OTHER[norm], not forward)


def _r2c_shape(self: Any, dim: Sequence[int], norm: str, onesided: bool = True) -> Any:
    require_one_of("norm", norm, NORMS)
    dims, sizes = checked_dims(self, dim), list(self.shape)
    if onesided:
        sizes[dims[-1]] = sizes[dims[-1]] // 2 + 1
    return tuple(sizes)


def _real_samples(make: Any) -> Iterator[Sample]:
    for i, (x, dim) in enumerate(_planes(make)):
        yield Sample(x, dim, NORMS[i % 3], True)
        yield Sample(x, dim, NORMS[(i + 1) % 3], False)


def _r2c_reference(self: Any, dim: Any, norm: Any, onesided: bool = True) -> Any:
    return (np.fft.rfftn if onesided else np.fft.fftn)(self, axes=dim, norm=norm)


@composite(
    cast="float32",
    out=_r2c_shape,
    dtype=lambda self, *_: DType.of(self.dtype).to_complex(),
    reference=_r2c_reference,
    samples=_real_samples,
    takes=(float32, float64),
    tolerance=transform,
    namespace=(),
    method=False,
)
def fft_r2c(self: Tensor, dim: IntList, norm: str, onesided: bool = True) -> Tensor:
    """The transform of a real tensor. ``onesided`` leaves out what follows by symmetry: the last
    of ``dim`` then has n // 2 + 1 elements.
    """
    out = fft_c2c(lazy.complex(self, lazy.zeros_like(self)), dim, norm, True)
    last = dim[-1]
    return lazy.narrow(out, last, 0, self.shape[last] // 2 + 1) if onesided else out


@fft_r2c.vjp
def _(grad, self_shape, dim, norm, onesided):
    if not onesided:
        return lazy.real(fft_c2c(grad, dim, OTHER[norm], False))
    # fft_c2r counts what lies inside twice; the gradient counts it once.
    last, size = dim[-1], self_shape[dim[-1]]
    return fft_c2r(_weighted(grad, last, size, 0.5), dim, OTHER[norm], size)


def _weighted(x: Any, dim: int, size: int, weight: float) -> Any:
    """Onesided ``x`` times ``weight`` where a frequency stands for itself and its mirror image."""
    inside = (size - 1) // 2
    count = x.shape[dim]
    ends = lazy.arange(count, dtype=x.dtype.to_real(), device=x.device)
    doubled = (ends >= 1) & (ends <= inside)
    factor = lazy.where(doubled, weight, 1.0).to_dtype(x.dtype.to_real())
    following = x.ndim - 1 - (dim % x.ndim)
    return x * factor.reshape((count,) + (1,) * following)


def _c2r_shape(self: Any, dim: Sequence[int], norm: str, last_dim_size: int) -> Any:
    require_one_of("norm", norm, NORMS)
    dims, sizes = checked_dims(self, dim), list(self.shape)
    if last_dim_size < 1:
        raise OpError(
            f"Invalid number of data points ({last_dim_size}) specified", fix="use n >= 1"
        )
    if sizes[dims[-1]] != last_dim_size // 2 + 1:
        raise OpError(
            f"{sizes[dims[-1]]} frequencies do not make {last_dim_size} elements",
            fix=f"give the last dim {last_dim_size // 2 + 1}",
        )
    sizes[dims[-1]] = last_dim_size
    return tuple(sizes)


def _c2r_samples(make: Any) -> Iterator[Sample]:
    for i, (x, dim) in enumerate(_planes(make)):
        half = x.shape[dim[-1]]
        for size in {2 * half - 1, max(2 * half - 2, 1)}:
            yield Sample(x, dim, NORMS[i % 3], size)


def _c2r_reference(self: Any, dim: Any, norm: Any, last_dim_size: int) -> Any:
    sizes = [self.shape[d] for d in dim[:-1]] + [last_dim_size]
    return np.fft.irfftn(self, sizes, axes=dim, norm=norm)


@composite(
    cast="float32",
    out=_c2r_shape,
    dtype=real_like,
    reference=_c2r_reference,
    samples=_c2r_samples,
    takes=COMPLEX,
    tolerance=transform,
    namespace=(),
    method=False,
)
def fft_c2r(self: Tensor, dim: IntList, norm: str, last_dim_size: int) -> Tensor:
    """The inverse transform of half a symmetric spectrum, which is real.

    The last of ``dim`` has ``last_dim_size // 2 + 1`` elements and comes out with
    ``last_dim_size``; the imaginary part of its first (and, where the size is even, last)
    frequency is not read.
    """
    last = dim[-1]
    half = fft_c2c(self, dim[:-1], norm, False) if len(dim) > 1 else self
    mirrored = lazy.narrow(half, last, 1, (last_dim_size - 1) // 2)
    mirrored = lazy.conj(lazy.flip(mirrored, (last,)))
    return lazy.real(fft_c2c(lazy.cat([half, mirrored], last), (last,), norm, False))


@fft_c2r.vjp
def _(grad, dim, norm, last_dim_size):
    return _weighted(fft_r2c(grad, dim, OTHER[norm], True), dim[-1], last_dim_size, 2.0)
