"""The Fourier transform extension of the array API standard."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.array_api.promotion import call
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.dtypes import DType, default_dtype

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip


def _line(name: str) -> Any:
    def function(
        x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        return call(f"fft_{name}", x, n, axis, norm)  # type: ignore[no-any-return]

    return _named(function, name)


def _volume(name: str) -> Any:
    def function(
        x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward"
    ) -> Tensor:
        return call(f"fft_{name}", x, s, axes, norm)  # type: ignore[no-any-return]

    return _named(function, name)


def _named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` of the array API standard; see :func:`coredispatch.fft.{name}`."
    return function


fft, ifft, rfft, irfft = _line("fft"), _line("ifft"), _line("rfft"), _line("irfft")
hfft, ihfft = _line("hfft"), _line("ihfft")
fftn, ifftn, rfftn, irfftn = _volume("fftn"), _volume("ifftn"), _volume("rfftn"), _volume("irfftn")


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of :func:`fft`."""
    dtype = default_dtype() if dtype is None else DType.of(dtype)
    return call("fft_fftfreq", n, d, dtype=dtype, device=device)  # type: ignore[no-any-return]


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of :func:`rfft`."""
    dtype = default_dtype() if dtype is None else DType.of(dtype)
    return call("fft_rfftfreq", n, d, dtype=dtype, device=device)  # type: ignore[no-any-return]


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """``x`` with the frequency zero in the middle."""
    return call("fft_fftshift", x, axes)  # type: ignore[no-any-return]


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Undoes :func:`fftshift`."""
    return call("fft_ifftshift", x, axes)  # type: ignore[no-any-return]
