"""The frequencies that the elements of a transform stand for, and their order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.creation.factories import given_or_default
from coredispatch.ops.fft.transforms import require_dimensions
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Device, DType, IntList, Tensor
from coredispatch.ops.support.rules import exact, normalize_dim, same, same_shape, ulp
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import default_dtype
from coredispatch.registry.model.sizes import as_size


def _spaced(n: int, first: int, d: float, dtype: Any, device: Any, count: int) -> Any:
    """``first, first + 1, ...`` over ``n * d``, rounded once."""
    numbers = lazy.arange(first, first + count, dtype=dtype or default_dtype(), device=device)
    return numbers * (1.0 / (n * d) if n * d else math.inf)


def _metadata(name: str, count: Any) -> dict[str, Any]:
    return {
        "out": lambda n, *_: (count(as_size(n, "n")),),
        "dtype": given_or_default,
        "reference": lambda *args: getattr(np.fft, name)(*args),  # NumPy imports it when asked
        "samples": lambda make: (Sample(*args) for args in ((1,), (8,), (5, 0.5), (6, 3.0))),
        "tolerance": ulp(2),
        "differentiable": False,
        "factory": True,
        "namespace": "fft",
    }


@composite(**_metadata("fftfreq", lambda n: n))
def fft_fftfreq(
    n: int, d: float = 1.0, *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies of :func:`fft.fft` of ``n`` samples ``d`` apart: 0, 1, ..., -2, -1 over
    ``n * d``, 1-d.
    """
    up = (as_size(n, "n") + 1) // 2
    rising = _spaced(n, 0, d, dtype, device, up)
    return lazy.cat([rising, _spaced(n, -(n // 2), d, dtype, device, n - up)])


@composite(**_metadata("rfftfreq", lambda n: n // 2 + 1))
def fft_rfftfreq(
    n: int, d: float = 1.0, *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies of :func:`fft.rfft`: 0, 1, ..., n // 2 over ``n * d``, 1-d."""
    return _spaced(n, 0, d, dtype, device, as_size(n, "n") // 2 + 1)


def _dims(x: Any, dim: Any) -> tuple[int, ...]:
    if dim is None:
        return tuple(range(x.ndim))
    require_dimensions(x, dim)
    return tuple(normalize_dim(d, x.ndim) for d in dim)


def _shifts(make: Any) -> Any:
    yield Sample(make((5,)))
    yield Sample(make((4, 3)))
    yield Sample(make((4, 3)), 1)
    yield Sample(make((2, 3, 4)), (0, -1))


def _shift_metadata(name: str) -> dict[str, Any]:
    return {
        "out": same_shape,
        "dtype": same,
        "reference": lambda input, dim=None: getattr(np.fft, name)(input, dim),
        "samples": _shifts,
        "tolerance": exact,
        "namespace": "fft",
        "method": False,
    }


@composite(**_shift_metadata("fftshift"))
def fft_fftshift(input: Tensor, dim: IntList | None = None) -> Tensor:
    """``input`` with the frequency zero moved to the middle of each of ``dim`` (None: all)."""
    dims = _dims(input, dim)
    return lazy.roll(input, tuple(input.shape[d] // 2 for d in dims), dims)


@composite(**_shift_metadata("ifftshift"))
def fft_ifftshift(input: Tensor, dim: IntList | None = None) -> Tensor:
    """Undoes :func:`fft.fftshift`."""
    dims = _dims(input, dim)
    return lazy.roll(input, tuple((input.shape[d] + 1) // 2 for d in dims), dims)
