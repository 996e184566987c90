"""Special functions, whose definitions are dozens of operators.

Loops take over from the first element on: a definition takes 40 us of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, may_write
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS", "LEAST", "WHEN"]

_SPLIT = 16384


def _function(name: str) -> Callable[..., Any]:
    loop = Loop("elementwise.special", name, _SPLIT)
    compiled = loop.compiled

    def kernel(self: np.ndarray, out: Any = None) -> np.ndarray:
        size, own = self.size, self.dtype
        if out is None and size < _SPLIT:
            result = np.empty(self.shape, own)  # Loop.__call__ written out
            launch, task, _ = compiled[own]
            launch(self, result, size, size, task, 0)
            return result
        fits = out is not None and out is not self and may_write(out, self, self)
        result = out if fits else np.empty(self.shape, own)
        loop(own, size, size, self, result)
        if out is None or out is result:
            return result
        np.copyto(out, result, casting="same_kind")
        return out  # type: ignore[no-any-return]

    kernel.__name__ = name
    return kernel


def _accepts(self: Any, *_: Any) -> bool:
    if type(self) is not np.ndarray or not self.size or self.dtype not in FLOATS:
        return False
    return bool(self.flags.c_contiguous)


_trigamma = _function("trigamma")


def polygamma(self: np.ndarray, n: int) -> np.ndarray:
    """The first derivative of digamma."""
    result: np.ndarray = _trigamma(self)
    return result


def _accepts_order(self: Any, n: Any) -> bool:
    return n == 1 and _accepts(self)


_NAMES = ("digamma", "erfc", "erfcx", "erfinv", "lgamma", "ndtr", "sinc", "tanhshrink")
KERNELS: dict[str, Callable[..., Any]] = {
    **{name: _function(name) for name in _NAMES},
    "log1p": _function("log1p"),
    "polygamma": polygamma,
}
WHEN: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(_NAMES, _accepts),
    "log1p": _accepts,
    "polygamma": _accepts_order,
}
#: of one operator NumPy has a function of its own, which is as fast where it takes no detour
LEAST: dict[str, int] = {"log1p": 4096}
