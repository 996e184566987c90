"""The transforms by name: over one dim, two, or several; of complex, real and symmetric input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from coredispatch.ops.fft.transforms import (
    NORMS,
    OTHER,
    checked_dims,
    fft_c2c,
    fft_c2r,
    fft_r2c,
    require_dimensions,
    transformed_dtype,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import (
    normalize_dim,
    normalize_dims,
    require_one_of,
    transform,
)
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import complex64, complex128, float32, float64
from coredispatch.registry.model.errors import ArgumentError, DTypeError, OpError

REAL = (float32, float64)
ANY = (*REAL, complex64, complex128)


# ---- what all share ---------------------------------------------------------------------------


def _ready(x: Any, sizes: Any, dim: tuple[int, ...], norm: str | None) -> tuple[Any, str]:
    """``x`` in a dtype that is transformed, cut or filled with zeros to ``sizes`` along ``dim``."""
    require_dimensions(x, dim)
    for d in dim:
        normalize_dim(d, x.ndim)
    norm = "backward" if norm is None else norm
    require_one_of("norm", norm, NORMS)
    dtype = transformed_dtype(x)
    x = x if x.dtype is dtype else lazy.to_dtype(x, dtype)
    if sizes is None:
        return x, norm
    pads = [0, 0] * x.ndim
    for size, d in zip(sizes, dim, strict=True):
        if size < -1 or size == 0:
            raise _no_points(size)
        if size != -1:
            pads[2 * (x.ndim - 1 - normalize_dim(d, x.ndim)) + 1] = size - x.shape[d]
    return (lazy.constant_pad_nd(x, pads) if any(pads) else x), norm


def _one(x: Any, n: int | None, dim: int) -> tuple[int, ...] | None:
    """``n`` for several dims, to which -1 is the length that is there."""
    if n == -1:
        require_dimensions(x, (dim,))
        normalize_dim(dim, x.ndim)
        raise _no_points(n)
    return None if n is None else (n,)


def _no_points(n: int) -> OpError:
    return OpError(f"Invalid number of data points ({n}) specified", fix="use n >= 1")


def _places(x: Any, s: Any, dim: Any) -> tuple[Any, tuple[int, ...]]:
    """``(s, dim)`` completed: all dims, or the last of them where ``s`` alone is given."""
    if dim is None:
        count = x.ndim if s is None else len(s)
        if count > x.ndim:
            raise ArgumentError(
                f"Got shape with {count} values but input tensor only has {x.ndim} dimensions",
                fix="give at most one size for each dimension",
            )
        dim = tuple(range(x.ndim - count, x.ndim))
    require_dimensions(x, dim)
    normalize_dims(dim, x.ndim)
    if s is not None and len(s) != len(dim):
        raise ArgumentError(
            "When given, dim and shape arguments must have the same length, got "
            f"{len(dim)} and {len(s)}",
            fix="give one size for each dim",
        )
    return s, tuple(dim)


def _complex(x: Any, sizes: Any, dim: tuple[int, ...], norm: Any, forward: bool) -> Any:
    x, norm = _ready(x, sizes, dim, norm)
    if not dim:
        return x if x.dtype.is_complex else lazy.to_dtype(x, x.dtype.to_complex())
    checked_dims(x, dim)
    if x.dtype.is_complex:
        return fft_c2c(x, dim, norm, forward)
    if forward:
        return fft_r2c(x, dim, norm, False)
    return lazy.conj(fft_r2c(x, dim, OTHER[norm], False))


def _require_real(op: str, x: Any) -> None:
    if x.dtype.is_complex:
        raise DTypeError(
            f"{op} expects a real input tensor, but got {x.dtype}", fix=f"use {op[1:]}, or x.real"
        )


def _require_dims(op: str, dim: tuple[int, ...]) -> None:
    if not dim:
        raise OpError(f"{op} must transform at least one axis", fix="name it in dim=")


def _halved(op: str, x: Any, sizes: Any, dim: tuple[int, ...], norm: Any) -> Any:
    """The onesided spectrum of a real tensor."""
    _require_real(op, x)
    _require_dims(op, dim)
    x, norm = _ready(x, sizes, dim, norm)
    return fft_r2c(x, dim, norm, True)


def _whole(op: str, x: Any, sizes: Any, dim: tuple[int, ...], norm: Any) -> tuple[Any, str, int]:
    """A onesided spectrum as complex numbers, and the length it comes out with."""
    _require_dims(op, dim)
    require_dimensions(x, dim)
    normalize_dims(dim, x.ndim)
    given = sizes is not None and sizes[-1] != -1
    last = sizes[-1] if given else 2 * (x.shape[dim[-1]] - 1)
    if last < 1:
        raise OpError(f"Invalid number of data points ({last}) specified", fix="use n >= 1")
    if sizes is not None:
        sizes = (*sizes[:-1], last // 2 + 1)
    x, norm = _ready(x, sizes, dim, norm)
    return (x if x.dtype.is_complex else lazy.to_dtype(x, x.dtype.to_complex())), norm, last


def _hermitian(op: str, x: Any, sizes: Any, dim: tuple[int, ...], norm: Any) -> Any:
    """The transform, forward, of a signal that is symmetric along the last dim: real."""
    x, norm, last = _whole(op, x, sizes, dim, norm)
    if len(dim) > 1:
        x = fft_c2c(x, dim[:-1], norm, True)
    return fft_c2r(lazy.conj(x), dim[-1:], OTHER[norm], last)


def _hermitian_inverse(op: str, x: Any, sizes: Any, dim: tuple[int, ...], norm: Any) -> Any:
    _require_real(op, x)
    _require_dims(op, dim)
    x, norm = _ready(x, sizes, dim, norm)
    checked_dims(x, dim)
    half = lazy.conj(fft_r2c(x, dim[-1:], OTHER[norm], True))
    return half if len(dim) == 1 else fft_c2c(half, dim[:-1], norm, False)


# ---- samples and references -------------------------------------------------------------------


def _lines(shortest: int = 1) -> Callable[[Any], Iterator[Sample]]:
    def samples(make: Any) -> Iterator[Sample]:
        yield Sample(make((8,)))
        yield Sample(make((3, 5)), 4)
        yield Sample(make((4, 3)), 6, 0, "ortho")
        yield Sample(make((2, 4, 3)), None, 1, "forward")
        yield Sample(make((shortest,)), norm="backward")

    return samples


def _planes(make: Any) -> Iterator[Sample]:
    yield Sample(make((3, 4)))
    yield Sample(make((2, 3, 5)), (4, 3))
    yield Sample(make((4, 3, 2)), None, (2, 0), "ortho")
    yield Sample(make((4, 3, 2)), (2, 5), (0, 1), "forward")


def _volumes(make: Any) -> Iterator[Sample]:
    yield from _planes(make)
    yield Sample(make((2, 3, 4)), None, (1,))
    yield Sample(make((2, 3, 4)), (2, 4, 3), None)


def _metadata(reference: Any, samples: Any, dtypes: Any = ANY) -> dict[str, Any]:
    return {
        "reference": reference,
        "samples": samples,
        "dtypes": dtypes,
        "tolerance": transform,
        "namespace": "fft",
        "method": False,
    }


def _with_elements(input: Any, dims: Iterable[int]) -> Any:
    """``input``, or zeros: NumPy's ``irfft`` of no element shows memory that nobody wrote."""
    shape = list(input.shape)
    for dim in dims:
        shape[dim] = shape[dim] or 1
    return input if tuple(shape) == input.shape else np.zeros(shape, input.dtype)


def _line_reference(name: str) -> Any:
    def reference(input: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
        if n is not None:
            input = _with_elements(input, (dim,))
        return getattr(np.fft, name)(input, n, dim, norm)

    return reference


def _volume_reference(name: str, default: Any) -> Any:
    def reference(input: Any, s: Any = None, dim: Any = default, norm: Any = None) -> Any:
        if dim is None:
            dim = range(input.ndim) if s is None else range(input.ndim - len(s), input.ndim)
        if s is not None:
            input = _with_elements(input, dim)
        found = getattr(np.fft, name)(input, s, tuple(dim), norm)
        # Over no dimension NumPy gives back what it got; the result is complex all the same.
        return found + 0j if name in ("fftn", "ifftn") and not tuple(dim) else found

    return reference


def _hfftn_reference(default: Any) -> Any:
    def reference(input: Any, s: Any = None, dim: Any = default, norm: Any = None) -> Any:
        # The forward transform of x is the complex conjugate of the inverse one of its conjugate.
        other = OTHER[norm or "backward"]
        return _volume_reference("irfftn", default)(np.conj(input), s, dim, other)

    return reference


def _ihfftn_reference(default: Any) -> Any:
    def reference(input: Any, s: Any = None, dim: Any = default, norm: Any = None) -> Any:
        other = OTHER[norm or "backward"]
        return np.conj(_volume_reference("rfftn", default)(input, s, dim, other))

    return reference


# ---- one dim -----------------------------------------------------------------------------------


@composite(**_metadata(_line_reference("fft"), _lines()))
def fft_fft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
) -> Tensor:
    """Discrete Fourier transform along ``dim``, complex, of ``input`` cut or filled with zeros to
    ``n``. ``norm`` says which direction is scaled by 1/n: ``"backward"`` (default), ``"forward"``,
    or both by 1/sqrt(n): ``"ortho"``. Raises :class:`DTypeError` for half precision.
    """
    return _complex(input, _one(input, n, dim), (dim,), norm, True)


@composite(**_metadata(_line_reference("ifft"), _lines()))
def fft_ifft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
) -> Tensor:
    """Inverse of :func:`fft.fft`, with the same arguments."""
    return _complex(input, _one(input, n, dim), (dim,), norm, False)


@composite(**_metadata(_line_reference("rfft"), _lines(), REAL))
def fft_rfft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
) -> Tensor:
    """The first n // 2 + 1 frequencies of :func:`fft.fft` of a real tensor; the others are their
    mirror image.
    """
    return _halved("rfft", input, _one(input, n, dim), (dim,), norm)


@composite(**_metadata(_line_reference("irfft"), _lines(2)))
def fft_irfft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
) -> Tensor:
    """Inverse of :func:`fft.rfft`: real, of length ``n`` (2 * (m - 1) for m frequencies)."""
    x, norm, last = _whole("irfft", input, _one(input, n, dim), (dim,), norm)
    return fft_c2r(x, (dim,), norm, last)


@composite(**_metadata(_line_reference("hfft"), _lines(2)))
def fft_hfft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
) -> Tensor:
    """The transform of a signal of which half is given, as the rest is its mirror image: real, of
    length ``n`` (2 * (m - 1) for m elements).
    """
    return _hermitian("hfft", input, _one(input, n, dim), (dim,), norm)


@composite(**_metadata(_line_reference("ihfft"), _lines(), REAL))
def fft_ihfft(
    input: Tensor,
    n: int | None = None,
    dim: int = -1,
    norm: str | None = None,
) -> Tensor:
    """Inverse of :func:`fft.hfft` for real ``input``: its first n // 2 + 1 elements."""
    return _hermitian_inverse("ihfft", input, _one(input, n, dim), (dim,), norm)


# ---- two dims -----------------------------------------------------------------------------------


@composite(**_metadata(_volume_reference("fftn", (-2, -1)), _planes))
def fft_fft2(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """:func:`fft.fft` over the last two dims."""
    s, dim = _places(input, s, dim)
    return _complex(input, s, dim, norm, True)


@composite(**_metadata(_volume_reference("ifftn", (-2, -1)), _planes))
def fft_ifft2(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """Inverse of :func:`fft.fft2`."""
    s, dim = _places(input, s, dim)
    return _complex(input, s, dim, norm, False)


@composite(**_metadata(_volume_reference("rfftn", (-2, -1)), _planes, REAL))
def fft_rfft2(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """:func:`fft.rfft` along the last of ``dim``, :func:`fft.fft` along the others."""
    s, dim = _places(input, s, dim)
    return _halved("rfft2", input, s, dim, norm)


@composite(**_metadata(_volume_reference("irfftn", (-2, -1)), _planes))
def fft_irfft2(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """Inverse of :func:`fft.rfft2`."""
    s, dim = _places(input, s, dim)
    x, norm, last = _whole("irfft2", input, s, dim, norm)
    return fft_c2r(x, dim, norm, last)


@composite(**_metadata(_hfftn_reference((-2, -1)), _planes))
def fft_hfft2(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """:func:`fft.hfft` along the last of ``dim``, :func:`fft.fft` along the others."""
    s, dim = _places(input, s, dim)
    return _hermitian("hfft2", input, s, dim, norm)


@composite(**_metadata(_ihfftn_reference((-2, -1)), _planes, REAL))
def fft_ihfft2(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """Inverse of :func:`fft.hfft2`."""
    s, dim = _places(input, s, dim)
    return _hermitian_inverse("ihfft2", input, s, dim, norm)


# ---- several dims -------------------------------------------------------------------------------


@composite(**_metadata(_volume_reference("fftn", None), _volumes))
def fft_fftn(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList | None = None,
    norm: str | None = None,
) -> Tensor:
    """:func:`fft.fft` over the dims ``dim``: all, or the last len(s) of them."""
    s, dim = _places(input, s, dim)
    return _complex(input, s, dim, norm, True)


@composite(**_metadata(_volume_reference("ifftn", None), _volumes))
def fft_ifftn(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList | None = None,
    norm: str | None = None,
) -> Tensor:
    """Inverse of :func:`fft.fftn`."""
    s, dim = _places(input, s, dim)
    return _complex(input, s, dim, norm, False)


@composite(**_metadata(_volume_reference("rfftn", None), _volumes, REAL))
def fft_rfftn(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList | None = None,
    norm: str | None = None,
) -> Tensor:
    """:func:`fft.rfft` along the last of ``dim``, :func:`fft.fft` along the others."""
    s, dim = _places(input, s, dim)
    return _halved("rfftn", input, s, dim, norm)


@composite(**_metadata(_volume_reference("irfftn", None), _volumes))
def fft_irfftn(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList | None = None,
    norm: str | None = None,
) -> Tensor:
    """Inverse of :func:`fft.rfftn`."""
    s, dim = _places(input, s, dim)
    x, norm, last = _whole("irfftn", input, s, dim, norm)
    return fft_c2r(x, dim, norm, last)


@composite(**_metadata(_hfftn_reference(None), _volumes))
def fft_hfftn(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList | None = None,
    norm: str | None = None,
) -> Tensor:
    """:func:`fft.hfft` along the last of ``dim``, :func:`fft.fft` along the others."""
    s, dim = _places(input, s, dim)
    return _hermitian("hfftn", input, s, dim, norm)


@composite(**_metadata(_ihfftn_reference(None), _volumes, REAL))
def fft_ihfftn(
    input: Tensor,
    s: IntList | None = None,
    dim: IntList | None = None,
    norm: str | None = None,
) -> Tensor:
    """Inverse of :func:`fft.hfftn`."""
    s, dim = _places(input, s, dim)
    return _hermitian_inverse("ihfftn", input, s, dim, norm)
