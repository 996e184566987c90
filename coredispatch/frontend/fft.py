"""Fourier transforms: ``cd.fft.NAME``, the operators of the namespace ``fft``."""

from __future__ import annotations

from coredispatch.frontend.operators import operators

globals().update(operators("fft"))
__all__ = sorted(operators("fft"))
