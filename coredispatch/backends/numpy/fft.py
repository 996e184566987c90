"""NumPy kernels of Fourier transforms: those of the array-API base, without NumPy's warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.backends.array_api import fft
from coredispatch.backends.numpy.silence import silent

__all__ = ["KERNELS"]


def r2c(x: np.ndarray, dim: tuple[int, ...], norm: Any, onesided: bool) -> np.ndarray:
    """A transform of real numbers: ``fftn`` computes half the spectrum and mirrors it."""
    transform = np.fft.rfftn if onesided else np.fft.fftn
    out = transform(x, axes=dim, norm=norm)
    return out.astype(np.complex64, copy=False) if x.itemsize == 4 else out


KERNELS: dict[str, Callable[..., Any]] = {
    name: silent(kernel) for name, kernel in {**fft.kernels(np), "fft_r2c": r2c}.items()
}
