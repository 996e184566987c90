"""What is written alike in either precision: sines, activations and their derivatives."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import numpy as np
from numba import types

from ..intrinsics import copysign, cosine_of_quarters, fabs, fma, rint_shift, sine_of_quarters
from . import float32, float64
from .inlined import inlined

__all__ = ["elementary"]


def _derive(base: ModuleType, T: type[np.floating]) -> SimpleNamespace:
    exp, gelu_slope = base.exp, base.gelu_slope
    zero, one = T(0.0), T(1.0)
    # tanh form of gelu: 2 sqrt(2/pi) (x + 0.044715 x^3) = x (c0 + c1 x^2)
    c0 = T(2.0 * np.sqrt(2.0 / np.pi))
    c1 = T(2.0 * np.sqrt(2.0 / np.pi) * 0.044715)
    three_c1 = T(3.0) * c1

    sine_tail, cosine_tail = base.sine_tail, base.cosine_tail
    quarters, (first, second, third, fourth) = base.QUARTERS, base.TURN
    minus_half = T(-0.5)

    @inlined
    def rest_of_quarters(x):
        """``(shifted, sine, cosine)`` of ``x = n pi / 2 + r``, for ``|x| <= FAR``, NaN for NaN."""
        shifted, n = rint_shift(x, quarters)
        r = fma(-n, second, fma(-n, first, x))
        r = fma(-n, fourth, fma(-n, third, r))
        z = r * r
        sine = copysign(fma(r * z, sine_tail(z), r), r)  # of -0.0, too
        cosine = fma(z * z, cosine_tail(z), fma(z, minus_half, one))
        return shifted, sine, cosine

    @inlined
    def sin(x):
        """The sine of ``|x| <= FAR`` radians."""
        shifted, sine, cosine = rest_of_quarters(x)
        return sine_of_quarters(shifted, sine, cosine)

    @inlined
    def cos(x):
        """The cosine of ``|x| <= FAR`` radians."""
        shifted, sine, cosine = rest_of_quarters(x)
        return cosine_of_quarters(shifted, sine, cosine)

    @inlined
    def sigmoid(x):
        """``1 / (1 + e^-x)``; the exponential is never above 1, so small results stay exact."""
        e = exp(-fabs(x))
        return (one if x >= zero else e) / (one + e)

    @inlined
    def logistic(x):
        """``(sigmoid(x), 1 - sigmoid(x))``, neither by subtraction."""
        e = exp(-fabs(x))
        r = one / (one + e)
        er = e * r
        return (r if x >= zero else er), (er if x >= zero else r)

    @inlined
    def sigmoid_backward(grad, out):
        return grad * (out * (one - out))

    @inlined
    def tanh_backward(grad, out):
        return grad * (one - out * out)

    @inlined
    def silu(x):
        return x * sigmoid(x)

    @inlined
    def silu_backward(grad, x):
        s, rest = logistic(x)
        return grad * (s * fma(x, rest, one))

    @inlined
    def gelu_backward(grad, x):
        return grad * gelu_slope(x)

    @inlined
    def gelu_tanh(x):
        """``x/2 (1 + tanh(u)) = x sigmoid(2u)``, without the cancellation of ``1 + tanh``."""
        return x * sigmoid(x * fma(c1, x * x, c0))

    @inlined
    def gelu_tanh_backward(grad, x):
        s, rest = logistic(x * fma(c1, x * x, c0))
        return grad * (s * fma(x * rest, fma(three_c1, x * x, c0), one))

    @inlined
    def relu(x):
        """``max(x, 0)``: NaN stays, -0.0 becomes 0.0, both as in NumPy's ``maximum``."""
        positive = x if x > zero else zero
        return positive if x == x else x

    return SimpleNamespace(
        T=T,
        type=types.float32 if T is np.float32 else types.float64,
        exp=exp,
        log=base.log,
        tanh=base.tanh,
        erf=base.erf,
        sin=sin,
        cos=cos,
        FAR=base.FAR,
        sigmoid=sigmoid,
        logistic=logistic,
        sigmoid_backward=sigmoid_backward,
        tanh_backward=tanh_backward,
        silu=silu,
        silu_backward=silu_backward,
        gelu=base.gelu,
        gelu_backward=gelu_backward,
        gelu_tanh=gelu_tanh,
        gelu_tanh_backward=gelu_tanh_backward,
        relu=relu,
    )


#: the functions by dtype character
elementary = {"f": _derive(float32, np.float32), "d": _derive(float64, np.float64)}
