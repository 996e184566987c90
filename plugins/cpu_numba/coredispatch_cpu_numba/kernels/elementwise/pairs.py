"""Functions of two numbers that NumPy computes one after the other, or in several operators.

The second operand may be an array of the same shape, a number, or a row for each row of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import FLOATS, constant, may_write
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.elementwise.pointwise import accepts_two

__all__ = ["KERNELS", "LEAST", "WHEN"]

#: name -> (least size, size from which the work is split among threads)
_NAMES = {
    "copysign": (8192, 65536),
    "floor_divide": (128, 32768),
    "fmod": (64, 32768),
    "hypot": (256, 32768),
    "logaddexp": (64, 16384),
    "logaddexp2": (64, 16384),
    "nextafter": (256, 65536),
    "remainder": (128, 32768),
    "xlogy": (64, 24576),
}
#: so many elements of two equal arrays are one stretch
_WIDTH = 256


def _function(name: str, split: int) -> Callable[..., Any]:
    loop = Loop("elementwise.pairs", name, split)
    compiled = loop.compiled

    def kernel(self: np.ndarray, other: Any, out: Any = None) -> np.ndarray:
        size, own = self.size, self.dtype
        if out is None and size < split and type(other) is np.ndarray and other.ndim == self.ndim:
            result = np.empty(self.shape, own)  # Loop.__call__ written out
            launch, task, _ = compiled[own]
            count = -(-size // _WIDTH)
            launch(self, other, _WIDTH, _WIDTH, result, count, count, task, 0)
            return result
        fits = out is not None and out is not self and may_write(out, self, other)
        result = out if fits and out is not other else np.empty(self.shape, own)
        width, step = _WIDTH, 0
        if type(other) is not np.ndarray:
            other = constant(width, own, float(other))
        elif other.shape == self.shape:
            step = width
        else:
            width = other.size
        loop(own, size, -(-size // width), self, other, width, step, result, weight=width)
        if out is None or out is result:
            return result
        np.copyto(out, result, casting="same_kind")
        return out  # type: ignore[no-any-return]

    kernel.__name__ = name
    return kernel


KERNELS: dict[str, Callable[..., Any]] = {
    name: _function(name, split) for name, (_, split) in _NAMES.items()
}
WHEN: dict[str, Callable[..., bool]] = {
    name: accepts_two(least, True, FLOATS) for name, (least, _) in _NAMES.items()
}
LEAST: dict[str, int] = {name: least for name, (least, _) in _NAMES.items()}
