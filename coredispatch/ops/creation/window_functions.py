"""Windows for spectral analysis (Harris, "On the use of windows for harmonic analysis", 1978)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.creation.factories import given_or_default
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Device, DType
from coredispatch.ops.support.precision import widest
from coredispatch.ops.support.rules import ulp
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.sizes import as_size

Tensor = Any

__all__ = [
    "bartlett_window",
    "blackman_window",
    "hamming_window",
    "hann_window",
    "kaiser_window",
]


def _length(window_length: int, *_: Any) -> tuple[int, ...]:
    return (as_size(window_length, "window_length"),)


def _floating(*args: Any) -> DType:
    """The dtype rule of windows: :func:`given_or_default`, which has to be floating point."""
    found = given_or_default(*args)
    if not found.is_floating_point:
        raise DTypeError(
            f"a window of {found}: windows have floating-point dtypes",
            fix="make it in one, and convert the result",
        )
    return found


def _places(length: int, periodic: bool, device: Any) -> tuple[Any, int]:
    """Sample numbers, and the number of steps in one period."""
    _length(length)
    return lazy.arange(length, dtype=widest(device), device=device), max(length - (not periodic), 1)


def _cosines(length: int, periodic: bool, device: Any, terms: tuple[float, ...]) -> Any:
    if length == 1:
        return lazy.ones((1,), dtype=widest(device), device=device)
    n, period = _places(length, periodic, device)
    total = lazy.full((length,), terms[0], dtype=n.dtype, device=device)
    for k, weight in enumerate(terms[1:], 1):
        total = total + lazy.cos(n * (2 * math.pi * k / period)) * weight
    return total


def _metadata(reference: Any) -> dict[str, Any]:
    def numpy_window(window_length: int, periodic: bool = True) -> Any:
        count = window_length + periodic
        return reference(count)[:window_length] if window_length != 1 else np.ones(1)

    return {
        "out": _length,
        "dtype": _floating,
        "reference": numpy_window,
        "samples": lambda make: (
            *(Sample(n) for n in (0, 1, 2, 17)),
            Sample(16, False),
        ),
        "tolerance": ulp(64),
        "differentiable": False,
        "factory": True,
    }


def _cosine_window(name: str, terms: tuple[float, ...], reference: Any, formula: str) -> Any:
    @composite(name=name, **_metadata(reference))
    def window(
        window_length: int,
        periodic: bool = True,
        *,
        dtype: DType | None = None,
        device: Device | None = None,
    ) -> Tensor:
        values = _cosines(window_length, periodic, device, terms)
        return values.to_dtype(_floating(dtype))

    window.__doc__ = (
        f"``{formula}`` with x = n / N, 1-d; N is the length when ``periodic`` (fit for spectra), "
        "else one less (symmetric, fit for filters)."
    )
    return window


hann_window = _cosine_window("hann_window", (0.5, -0.5), np.hanning, "0.5 - 0.5 cos(2 pi x)")
blackman_window = _cosine_window(
    "blackman_window",
    (0.42, -0.5, 0.08),
    np.blackman,
    "0.42 - 0.5 cos(2 pi x) + 0.08 cos(4 pi x)",
)


@composite(**_metadata(np.hamming))
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """``alpha - beta cos(2 pi x)`` with x = n / N; see :func:`hann_window`."""
    values = _cosines(window_length, periodic, device, (alpha, -beta))
    return values.to_dtype(_floating(dtype))


@composite(**_metadata(np.bartlett))
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """``1 - |2 x - 1|`` with x = n / N, a triangle; see :func:`hann_window`."""
    n, period = _places(window_length, periodic, device)
    if window_length == 1:
        return lazy.ones((1,), dtype=_floating(dtype), device=device)
    values = 1 - lazy.abs(n * (2 / period) - 1)
    return values.to_dtype(_floating(dtype))


@composite(**_metadata(lambda count: np.kaiser(count, 12.0)))
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """``I0(beta sqrt(1 - (2 x - 1)**2)) / I0(beta)`` with x = n / N; see :func:`hann_window`."""
    n, period = _places(window_length, periodic, device)
    if window_length == 1:
        return lazy.ones((1,), dtype=_floating(dtype), device=device)
    x = n * (2 / period) - 1
    top = lazy.full((), beta, dtype=n.dtype, device=device)
    values = lazy.i0(lazy.sqrt(lazy.clamp(1 - x * x, 0.0)) * beta) / lazy.i0(top)
    return values.to_dtype(_floating(dtype))
