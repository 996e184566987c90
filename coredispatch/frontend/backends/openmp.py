"""OpenMP: not used. The threads of kernels are NumPy's BLAS' and the plugins' own."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False: no part of coredispatch runs on OpenMP."""
    return False
