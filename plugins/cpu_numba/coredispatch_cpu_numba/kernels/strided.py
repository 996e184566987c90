"""Arrays whose elements lie in another order, as ``channels_last`` images do.

The loops read contiguous arrays. NumPy's kernels take any strides, and up to ten times as long.
For convolutions and pooling, whose results are row-major, arrays are brought into order first: a
gradient that was expanded from a number, too, and a window of a larger image. Functions element by
element keep the order, and run over the memory as it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from coredispatch.plugin import OpError, call_raw
from coredispatch_cpu_numba.arrays import FLOATS
from coredispatch_cpu_numba.kernels.elementwise import pointwise
from coredispatch_cpu_numba.layout import reduced

__all__ = ["KERNELS", "LEAST", "PRIORITY", "WHEN"]

#: below all kernels that read the arrays as they are
PRIORITY = 4
_LEAST = 1024


def _in_order(array: Any) -> Any:
    if type(array) is not np.ndarray or array.flags.c_contiguous:
        return array
    if 0 in array.strides:  # of what is expanded there is little to read
        return np.ascontiguousarray(array)
    return call_raw("contiguous", "cpu", array, None)


def _served(name: str) -> Callable[..., Any]:
    """Operator ``name`` of arrays in order."""

    def kernel(*args: Any) -> Any:
        try:
            return call_raw(name, "cpu", *map(_in_order, args))
        except OpError:
            return NotImplemented  # NumPy's kernel says what is wrong

    kernel.__name__ = name
    return kernel


def _accepts(*args: Any) -> bool:
    """Whether an array is not in order, and all are of one dtype that loops are compiled for."""
    dtype, strided = args[0].dtype, False
    if dtype not in FLOATS:
        return False
    for x in args:
        if type(x) is np.ndarray:
            strided = strided or not x.flags.c_contiguous
            if x.dtype != dtype and x.dtype.kind == "f":
                return False
    return strided


_OPERATORS = (
    "adaptive_avg_pool",
    "adaptive_avg_pool_backward",
    "avg_pool",
    "avg_pool_backward",
    "conv_input_grad",
    "conv_weight_grad",
    "convolution",
    "group_norm",
    "group_norm_backward",
    "max_pool",
    "max_pool_backward",
)


@lru_cache(maxsize=1024)
def _order(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Any:
    """The dimensions from the outermost to the innermost one; None where there are gaps."""
    order = tuple(sorted(range(len(shape)), key=lambda i: (-strides[i], -shape[i])))
    step = itemsize
    for i in reversed(order):
        if strides[i] != step and shape[i] != 1:
            return None
        step *= shape[i]
    return order


def _elementwise(name: str) -> Callable[..., Any]:
    """Operator ``name`` over the memory of arrays that lie in the same order."""

    def kernel(*args: Any) -> Any:
        first = args[0]
        order = _order(first.shape, first.strides, first.itemsize)
        flat = []
        for x in args:
            if type(x) is np.ndarray:
                if x.strides != first.strides or x.shape != first.shape:
                    return NotImplemented
                x = x.transpose(order)
            flat.append(x)
        result = call_raw(name, "cpu", *flat)
        return result.transpose([order.index(i) for i in range(len(order))])

    kernel.__name__ = name
    return kernel


def _dims(dim: Any, order: tuple[int, ...]) -> Any:
    """Dimensions where ``order`` has them; raises ValueError or IndexError where there are none."""
    if type(dim) is int:
        return order.index(range(len(order))[dim])
    return dim and tuple([order.index(range(len(order))[d]) for d in dim])


def _reduction(name: str, at: int) -> Callable[..., Any]:
    """Operator ``name`` whose arguments have ``dim`` and ``keepdim`` from ``at`` on.

    The result is one number for many: it costs little to bring it into order.
    """

    def kernel(self: np.ndarray, *rest: Any) -> Any:
        dim, keepdim = rest[at], rest[at + 1]
        order = _order(self.shape, self.strides, self.itemsize)
        if order is None:
            return call_raw(name, "cpu", _in_order(self), *rest)
        try:
            dims = _dims(dim, order)
        except IndexError:
            return NotImplemented
        given = (*rest[:at], dims, True, *rest[at + 2 :])
        result = call_raw(name, "cpu", self.transpose(order), *given)
        shape = reduced(self.shape, dim, keepdim)
        return result.transpose([order.index(i) for i in range(len(order))]).reshape(shape)

    kernel.__name__ = name
    return kernel


def _scan(name: str) -> Callable[..., Any]:
    """Operator ``name`` along a dimension of arrays in any order, which the result keeps."""

    def kernel(self: np.ndarray, dim: int, *rest: Any) -> Any:
        order = _order(self.shape, self.strides, self.itemsize)
        if order is None:
            return call_raw(name, "cpu", _in_order(self), dim, *rest)
        try:
            along = _dims(dim, order)
        except IndexError:
            return NotImplemented
        result = call_raw(name, "cpu", self.transpose(order), along, *rest)
        return result.transpose([order.index(i) for i in range(len(order))])

    kernel.__name__ = name
    return kernel


def _accepts_reduction(self: Any, *rest: Any) -> bool:
    """Not along one dimension of elements apart: NumPy reads them as fast as a copy would."""
    return (
        self.dtype in FLOATS
        and not self.flags.c_contiguous
        and (min(self.strides) == self.itemsize or not rest[0])
    )


def _accepts_scan(self: Any, *_: Any) -> bool:
    return self.dtype in FLOATS and not self.flags.c_contiguous


def _accepts_elementwise(self: Any, *_: Any) -> bool:
    return (
        self.dtype in FLOATS
        and not self.flags.c_contiguous
        and _order(self.shape, self.strides, self.itemsize) is not None
    )


_ELEMENTWISE = (
    *pointwise.UNARY,
    "gelu",
    "gelu_backward",
    "leaky_relu",
    "leaky_relu_backward",
    "threshold_backward",
)
#: reductions, and the place of ``dim`` behind the array
_REDUCTIONS = {
    **dict.fromkeys(("sum", "mean", "amax", "amin"), 0),
    **dict.fromkeys(("linalg_vector_norm", "norm", "power_norm"), 1),
}
_SCANS = ("cumsum", "cumprod", "logcumsumexp")
KERNELS: dict[str, Callable[..., Any]] = {
    **{name: _reduction(name, at) for name, at in _REDUCTIONS.items()},
    **{name: _scan(name) for name in _SCANS},
    **{name: _served(name) for name in _OPERATORS},
    **{name: _elementwise(name) for name in _ELEMENTWISE},
}
WHEN: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(_OPERATORS, _accepts),
    **dict.fromkeys(_ELEMENTWISE, _accepts_elementwise),
    **dict.fromkeys(_REDUCTIONS, _accepts_reduction),
    **dict.fromkeys(_SCANS, _accepts_scan),
}
LEAST: dict[str, int] = dict.fromkeys(KERNELS, _LEAST)
