"""The affine map in NumPy: one matrix product, the bias added in place.

``ndarray.dot`` costs 0.4 us on small matrices where ``np.matmul`` costs 1.0 us. It is no use for a
matrix of a single element: BLAS scales by 0 without a look, and NaN times 0 would be 0.
"""

from __future__ import annotations

from math import prod

import numpy as np

from coredispatch.backends.numpy.silence import silent
from coredispatch.backends.numpy.windows import Array, widen


def linear(input: Array, weight: Array, bias: Array | None) -> Array:
    """Kernel of ``linear``."""
    x, w = widen(input), widen(weight)
    if w.ndim != 2:
        result = np.asarray(np.matmul(x, w))  # a vector of weights: one output per row
    elif w.shape[1] == 1:
        result = np.matmul(x, w.T)
    elif x.ndim <= 2:
        if not x.ndim:  # a number would scale the weight
            raise ValueError("a 0-d input has no features")
        result = x.dot(w.T)
    else:
        # As one product over all rows: matmul would loop over the leading dimensions.
        rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
        result = rows.dot(w.T).reshape(*x.shape[:-1], w.shape[0])
    if bias is not None:
        if bias.ndim and bias.shape != w.shape[:-1]:  # size 1 would broadcast
            raise ValueError(f"bias of shape {bias.shape} for a weight of shape {w.shape}")
        result += bias
    return result if x is input else result.astype(input.dtype)


def linear_weight_grad(grad_output: Array, input: Array) -> Array:
    """Kernel of ``linear_weight_grad``."""
    g, x = widen(grad_output), widen(input)
    if g.ndim != 2:
        count = prod(g.shape[:-1])
        g, x = g.reshape(count, g.shape[-1]), x.reshape(count, x.shape[-1])
    result = np.matmul(g.T, x) if g.size == 1 or x.size == 1 else g.T.dot(x)
    return result if x.dtype is input.dtype else result.astype(input.dtype)


KERNELS = {"linear": silent(linear), "linear_weight_grad": silent(linear_weight_grad)}
