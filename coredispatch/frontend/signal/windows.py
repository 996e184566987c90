"""Windows for spectral analysis, each scaled to a maximum of 1.

Every function takes ``M``, the number of elements, ``sym``: symmetric, fit for filters, or one
period of a window with one element more, fit for spectra; ``dtype`` (the default float), ``device``
and ``requires_grad``. Formulas: Harris, "On the use of windows for harmonic analysis with the
discrete Fourier transform" (1978); Nuttall, "Some windows with very good sidelobe behavior" (1981).
All are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from coredispatch.frontend.argument_types import DeviceLike, DTypeLike
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import DType, default_dtype, float32, float64
from coredispatch.registry.model.errors import ArgumentError, DTypeError

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def _checked(name: str, M: int, dtype: Any, layout: Any) -> DType:
    if M < 0:
        raise ArgumentError(
            f"{name} requires non-negative window length, got M={M}", fix="use M >= 0"
        )
    if not str(layout).endswith("strided"):
        raise ArgumentError(
            f"{name} is implemented for strided tensors only, got: {layout}", fix="leave it away"
        )
    found = default_dtype() if dtype is None else DType.of(dtype)
    if found not in (float32, float64):
        raise ArgumentError(
            f"{name} expects float32 or float64 dtypes, got: {found}", fix="convert the result"
        )
    return found


def _places(M: int, sym: bool, device: Any) -> tuple[Any, int]:
    """0, 1, ... for the elements in float64, and the number of steps in one period."""
    n = TABLE.operator("arange")(M, dtype=float64, device=device)
    return n, max(M - 1 if sym or M < 2 else M, 1)


def _made(values: Any, dtype: DType, requires_grad: bool) -> Tensor:
    out: Tensor = values.to(dtype)
    return out.requires_grad_() if requires_grad else out


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``sum_i (-1)**i a[i] cos(2 pi i n / N)``.

    Raises ``TypeError`` where ``a`` is no sequence of weights, ``ValueError`` where it is empty.
    """
    found = _checked("general_cosine", M, dtype, layout)
    if not isinstance(a, Iterable):
        raise DTypeError("Coefficients must be a list/tuple", fix="a=[0.5, 0.5]")
    weights = list(a)
    if not weights:
        raise ArgumentError("Coefficients cannot be empty", fix="a=[0.5, 0.5]")
    n, period = _places(M, sym, device)
    if M == 1:
        return _made(n + 1.0, found, requires_grad)
    values = n * 0.0
    for i, weight in enumerate(weights):
        values = values + (n * (2 * math.pi * i / period)).cos() * (weight * (-1) ** i)
    return _made(values, found, requires_grad)


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``alpha - (1 - alpha) cos(2 pi n / N)``."""
    return general_cosine(
        M,
        a=[alpha, 1.0 - alpha],
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


def hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``0.54 - 0.46 cos(2 pi n / N)``."""
    return general_cosine(
        M,
        a=[0.54, 0.46],
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


def hann(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``0.5 - 0.5 cos(2 pi n / N)``."""
    return general_cosine(
        M,
        a=[0.5, 0.5],
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


def blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)``."""
    return general_cosine(
        M,
        a=[0.42, 0.5, 0.08],
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


def nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The window of four cosines with continuous first derivative and least sidelobes."""
    return general_cosine(
        M,
        a=[0.3635819, 0.4891775, 0.1365995, 0.0106411],
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``1 - |2 n / N - 1|``, a triangle."""
    found = _checked("bartlett", M, dtype, layout)
    n, period = _places(M, sym, device)
    values = n + 1.0 if M == 1 else 1 - (n * (2 / period) - 1).abs()
    return _made(values, found, requires_grad)


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``sin(pi (n + 0.5) / N)``."""
    found = _checked("cosine", M, dtype, layout)
    n, _ = _places(M, sym, device)
    values = ((n + 0.5) * (math.pi / (M + 1 if not sym and M > 1 else max(M, 1)))).sin()
    return _made(values, found, requires_grad)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``exp(-|n - center| / tau)``; ``center`` is the middle, and may be given unless ``sym``.

    Raises ``ValueError`` for ``tau <= 0`` and for a ``center`` of a symmetric window.
    """
    found = _checked("exponential", M, dtype, layout)
    if tau <= 0:
        raise ArgumentError(f"Tau must be positive, got: {tau} instead.", fix="use tau > 0")
    if sym and center is not None:
        raise ArgumentError("Center must be None for symmetric windows", fix="use sym=False")
    n, _ = _places(M, sym, device)
    middle = (M if not sym and M > 1 else M - 1) / 2 if center is None else center
    values = ((n - middle).abs() * (-1 / tau)).exp()
    return _made(values, found, requires_grad)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``exp(-((n - N / 2) / std)**2 / 2)``. Raises ``ValueError`` for ``std <= 0``."""
    found = _checked("gaussian", M, dtype, layout)
    if std <= 0:
        raise ArgumentError(
            f"Standard deviation must be positive, got: {std} instead.", fix="use std > 0"
        )
    n, _ = _places(M, sym, device)
    scaled = (n - (M if not sym and M > 1 else M - 1) / 2) * (1 / std)
    values = (scaled * scaled * -0.5).exp()
    return _made(values, found, requires_grad)


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: DTypeLike | None = None,
    layout: Any = "strided",
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``I0(beta sqrt(1 - (2 n / N - 1)**2)) / I0(beta)``; ``ValueError`` for ``beta < 0``."""
    found = _checked("kaiser", M, dtype, layout)
    if beta < 0:
        raise ArgumentError(f"beta must be non-negative, got: {beta} instead.", fix="use beta >= 0")
    n, period = _places(M, sym, device)
    if M == 1:
        return _made(n + 1.0, found, requires_grad)
    x = n * (2 / period) - 1
    values = ((1 - x * x).clamp(0.0).sqrt() * beta).i0() / (x.new_zeros(()) + beta).i0()
    return _made(values, found, requires_grad)
