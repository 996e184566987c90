"""Intel's MKL: used where NumPy was built with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

__all__ = ["VERBOSE_OFF", "VERBOSE_ON", "is_available", "verbose"]

VERBOSE_OFF = 0
VERBOSE_ON = 1


def is_available() -> bool:
    """Whether the BLAS that NumPy calls is MKL."""
    configuration = np.show_config(mode="dicts") or {}
    name = configuration.get("Build Dependencies", {}).get("blas", {}).get("name", "")
    return "mkl" in str(name).lower()


@contextlib.contextmanager
def verbose(enable: int) -> Iterator[None]:
    """A block in which MKL prints its calls: set ``MKL_VERBOSE`` before Python starts instead."""
    if enable != VERBOSE_OFF:
        raise NotImplementedError(
            "backends.mkl.verbose: set the variable MKL_VERBOSE=1 before Python starts"
        )
    yield
