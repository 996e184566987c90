"""Smooth and piecewise linear gates: ``x`` times, or through, something like a step.

Those that training programs are made of have a fused ``*_backward`` operator.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coredispatch.ops.activation import logistic
from coredispatch.ops.activation.rectifiers import (
    FUNCTIONAL,
    accept_inplace,
    activation_metadata,
    backward_metadata,
)
from coredispatch.ops.elementwise import (
    comparison,
    error_functions,
    exponential,
    magnitude,
    trigonometric,
)
from coredispatch.ops.elementwise.approximation import elementwise, in_float64
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import (
    conditioned,
    exact,
    promote,
    promote_float,
    require_one_of,
    ulp,
)
from coredispatch.ops.support.samples import Sample, with_options
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError
from coredispatch.registry.model.value import dtype_of

# ---- smooth gates -----------------------------------------------------------------------------

_erfc_reference = elementwise(math.erfc)


def _gelu_reference(self: Any, approximate: str = "none") -> Any:
    if approximate == "none":
        # 1 + erf cancels: at -2 it is 100 units in the last place of a float64 off.
        return 0.5 * self * _erfc_reference(self * -math.sqrt(0.5))
    inner = math.sqrt(2 / math.pi) * (self + 0.044715 * self**3)
    return 0.5 * self * (1 + np.tanh(inner))


@composite(
    takes="float",
    **activation_metadata(
        _gelu_reference,
        tolerance=conditioned,  # 1 + tanh cancels in the negative tail
        samples=with_options({}, {"approximate": "tanh"}),
        inplace=False,
    ),
)
def gelu(self: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit ``x * Phi(x)`` (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    ``approximate="tanh"`` uses ``0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``.
    """
    require_one_of("approximate", approximate, ("none", "tanh"))
    if approximate == "tanh":
        cube = mul(mul(self, self), self)
        inner = mul(add(self, mul(cube, 0.044715)), math.sqrt(2 / math.pi))
        return mul(mul(self, 0.5), add(trigonometric.tanh(inner), 1))
    # Phi through erfc, so that the negative tail keeps its digits.
    return mul(mul(self, 0.5), error_functions.erfc(mul(self, -math.sqrt(0.5))))


@gelu.vjp
def _(grad, self, approximate):
    return gelu_backward(grad, self, approximate)


def _gelu_backward_samples(make: Any) -> Any:
    for shape in ((), (17,), (3, 5)):
        yield Sample(make(shape), make(shape), "none")
        yield Sample(make(shape), make(shape), "tanh")


@composite(**backward_metadata(_gelu_backward_samples))
def gelu_backward(grad_of_gelu: Tensor, self: Tensor, approximate: str) -> Tensor:
    """Gradient of :func:`gelu`: ``Phi(x) + x * phi(x)``, or that of its approximation."""
    grad_of_gelu, self = common(promote, grad_of_gelu, self)
    if approximate == "tanh":
        like, grad_of_gelu, self = self, wide(grad_of_gelu), wide(self)  # squares leave float16
        root = math.sqrt(2 / math.pi)
        square = mul(self, self)
        inner = mul(mul(self, add(mul(square, 0.044715), 1)), root)
        t = trigonometric.tanh(inner)
        steep = mul(add(mul(square, 3 * 0.044715), 1), root)
        slope = add(mul(add(t, 1), 0.5), mul(mul(mul(self, 0.5), sub(1, mul(t, t))), steep))
        return narrow(mul(grad_of_gelu, slope), like)
    cumulative = mul(error_functions.erfc(mul(self, -math.sqrt(0.5))), 0.5)
    density = mul(exponential.exp(mul(mul(self, self), -0.5)), 1 / math.sqrt(2 * math.pi))
    return mul(grad_of_gelu, add(cumulative, mul(self, density)))


gelu_backward.vjp(
    grad_of_gelu=lambda grad, self, approximate: gelu_backward(grad, self, approximate),
    self=lambda grad, grad_of_gelu, self, approximate: mul(
        mul(grad, grad_of_gelu), narrow(_gelu_second(wide(self), approximate), self)
    ),
)


def _gelu_second(x: Any, approximate: str) -> Any:
    """The second derivative of :func:`gelu`."""
    square = mul(x, x)
    if approximate == "none":
        density = mul(exponential.exp(mul(square, -0.5)), 1 / math.sqrt(2 * math.pi))
        return mul(density, sub(2, square))
    root = math.sqrt(2 / math.pi)
    inner = mul(mul(x, add(mul(square, 0.044715), 1)), root)
    t = trigonometric.tanh(inner)
    # 1 - tanh(y)^2 by the two sigmoids it is made of, so that it keeps its digits for large y.
    bell = mul(mul(logistic.sigmoid(mul(inner, 2)), logistic.sigmoid(mul(inner, -2))), 4)
    first = mul(add(mul(square, 3 * 0.044715), 1), root)
    second = sub(mul(x, 6 * 0.044715 * root), mul(mul(t, 2), mul(first, first)))
    return mul(bell, add(first, mul(mul(x, 0.5), second)))


@composite(
    takes="float+complex",
    **activation_metadata(
        lambda self: self * logistic.sigmoid_reference(self), tolerance=ulp(6, product=True)
    ),
)
def silu(self: Tensor) -> Tensor:
    """Sigmoid linear unit ``x * sigmoid(x)``, also called swish."""
    return mul(self, logistic.sigmoid(self))


@silu.vjp
def _(grad, self):
    return silu_backward(grad, self)


accept_inplace(silu)


@composite(**backward_metadata())
def silu_backward(grad: Tensor, self: Tensor) -> Tensor:
    """Gradient of :func:`silu`: ``s * (1 + x * (1 - s))`` with ``s = sigmoid(x)``."""
    grad, x = common(promote, grad, self)
    s = logistic.sigmoid(x)
    return mul(grad, mul(s, add(mul(x, sub(1, s)), 1)))


@composite(
    takes="float",
    **activation_metadata(
        lambda self: self * np.tanh(np.logaddexp(0, self)), tolerance=ulp(8, product=True)
    ),
)
def mish(self: Tensor) -> Tensor:
    """``x * tanh(softplus(x))`` (Misra 2019, arXiv:1908.08681)."""
    return mul(self, trigonometric.tanh(softplus(self)))


@mish.vjp
def _(grad, self):
    return mish_backward(grad, self)


accept_inplace(mish)


@composite(**backward_metadata())
def mish_backward(grad: Tensor, self: Tensor) -> Tensor:
    """Gradient of :func:`mish`."""
    grad, self = common(promote, grad, self)
    t = trigonometric.tanh(softplus(self))
    # 1 - t * t would cancel: with q = exp(-softplus(x)) it is (2 q / (1 + q * q)) ** 2.
    q = logistic.sigmoid(neg(self))
    root = div(mul(q, 2), add(mul(q, q), 1))
    inner = mul(mul(self, logistic.sigmoid(self)), mul(root, root))
    return mul(grad, add(t, inner))


def _softplus_reference(self: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    scaled = self * beta
    return np.where(scaled > threshold, self, np.logaddexp(0, scaled) / beta)


@composite(
    takes="float",
    **activation_metadata(
        _softplus_reference,
        6,
        samples=with_options({}, {"beta": 2.0}, {"threshold": 1.0}),
        inplace=False,
    ),
    cast="float32_accelerated",
)
def softplus(self: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x > threshold``."""
    scaled = self if beta == 1 else mul(self, beta)
    small = exponential.log1p(exponential.exp(neg(magnitude.abs(scaled))))
    out = add(small, magnitude.clamp(scaled, 0, None))
    linear = comparison.gt(scaled, threshold)
    return comparison.where(linear, self, out if beta == 1 else div(out, beta))


@softplus.vjp
def _(grad, self, beta, threshold):
    return softplus_backward(grad, self, beta, threshold)


@composite(
    **backward_metadata(
        lambda make: (Sample(make(s), make(s), 2.0, 20.0) for s in ((), (17,), (3, 5)))
    )
)
def softplus_backward(grad: Tensor, self: Tensor, beta: float, threshold: float) -> Tensor:
    """``grad * sigmoid(beta * x)``; ``grad`` itself where ``beta * x > threshold``."""
    grad, self = common(promote, grad, self)
    scaled = self if beta == 1 else mul(self, beta)
    slope = mul(grad, logistic.sigmoid(scaled))
    return comparison.where(comparison.gt(scaled, threshold), grad, slope)


def _logsigmoid_reference(self: Any) -> Any:
    return np.minimum(self, 0) - np.log1p(np.exp(-np.abs(self)))


@composite(
    takes="float",
    **activation_metadata(_logsigmoid_reference, 6, inplace=False, alias=("log_sigmoid",)),
)
def logsigmoid(self: Tensor) -> Tensor:
    """``log(sigmoid(x))`` without overflow."""
    small = exponential.log1p(exponential.exp(neg(magnitude.abs(self))))
    return sub(magnitude.clamp(self, None, 0), small)


@logsigmoid.vjp
def _(grad, self):
    return softplus_backward(grad, self, -1.0, math.inf)


logsigmoid.edge("1 and 0 far out", [0.0, -1000.0, 1000.0], gradient=[0.5, 1.0, 0.0])


# ---- piecewise linear gates -------------------------------------------------------------------


@composite(
    takes="float", **activation_metadata(lambda self: np.clip(self + 3, 0, 6) / 6, 4, smooth=False)
)
def hardsigmoid(self: Tensor) -> Tensor:
    """``min(max(x + 3, 0), 6) / 6``."""
    return div(magnitude.clamp(add(self, 3), 0, 6), 6)


@hardsigmoid.vjp
def _(grad, self):
    inside = comparison.logical_and(comparison.gt(self, -3), comparison.lt(self, 3))
    return comparison.where(inside, div(grad, 6), 0)


accept_inplace(hardsigmoid)


@composite(
    takes="float",
    **activation_metadata(lambda self: self * (np.clip(self + 3, 0, 6) / 6), 4, smooth=False),
)
def hardswish(self: Tensor) -> Tensor:
    """``x * hardsigmoid(x)`` (Howard et al. 2019, arXiv:1905.02244)."""
    x = wide(self)
    return narrow(mul(x, hardsigmoid(x)), self)  # 6 * x may overflow


@hardswish.vjp
def _(grad, self):
    inner = mul(grad, add(div(self, 3), 0.5))
    upper = comparison.where(comparison.ge(self, 3), grad, inner)
    return comparison.where(comparison.le(self, -3), 0, upper)


hardswish.edge("the outer ones at the bounds", [-3.0, 3.0, 0.0], gradient=[0.0, 1.0, 0.5])


accept_inplace(hardswish)


@composite(
    takes="float",
    **activation_metadata(
        lambda self, lambd=0.5: np.where(np.abs(self) <= lambd, 0, self),
        0,
        samples=with_options({}, {"lambd": 1.0}),
        namespace=("", FUNCTIONAL),
        method=True,
        inplace=False,
        smooth=False,
        tolerance=exact,
    ),
)
def hardshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    """``self`` where its magnitude exceeds ``lambd``, else 0."""
    return comparison.where(comparison.le(magnitude.abs(self), lambd), 0, self)


@hardshrink.vjp
def _(grad, self, lambd):
    return hardshrink_backward(grad, self, lambd)


hardshrink.edge("0 at the bounds", [0.5, -0.5, 1.0, 0.0], gradient=[0.0, 0.0, 1.0, 0.0])


@composite(
    **backward_metadata(lambda make: (Sample(make(s), make(s), 0.5) for s in ((), (17,), (3, 5))))
)
def hardshrink_backward(grad: Tensor, self: Tensor, lambd: float) -> Tensor:
    """``grad`` where the magnitude of ``self`` exceeds ``lambd``, else 0."""
    grad, self = common(promote, grad, self)
    return comparison.where(comparison.le(magnitude.abs(self), lambd), 0, grad)


hardshrink_backward.vjp(
    grad=lambda grad, self, lambd: hardshrink_backward(grad, self, lambd),
    self=lambda grad: lazy.zeros_like(grad),
)


@composite(
    takes="float",
    **activation_metadata(
        lambda self, lambd=0.5: np.where(
            np.abs(self) > lambd, self - np.sign(self) * lambd, self * 0
        ),
        2,
        samples=with_options({}, {"lambd": 1.0}),
        inplace=False,
        smooth=False,
    ),
)
def softshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    """``self`` moved towards 0 by ``lambd``, 0 where it would cross. Needs ``lambd >= 0``."""
    if lambd < 0:
        raise ArgumentError(f"lambd must be >= 0, got {lambd}", fix="use a lambd of at least 0")
    above = comparison.where(comparison.gt(self, lambd), sub(self, lambd), mul(self, 0))
    return comparison.where(comparison.lt(self, -lambd), add(self, lambd), above)


@softshrink.vjp
def _(grad, self, lambd):
    return hardshrink_backward(grad, self, lambd)


softshrink.edge("0 at the bounds", [0.5, -0.5, 1.0, 0.0], gradient=[0.0, 0.0, 1.0, 0.0])


@composite(
    **activation_metadata(
        lambda self: self - np.tanh(self),
        0,
        dtype=promote_float,
        inplace=False,
        tolerance=conditioned,
    )
)
def tanhshrink(self: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    if dtype_of(self).is_complex:
        return sub(self, trigonometric.tanh(self))
    return in_float64(lambda x: sub(x, trigonometric.tanh(x)), self)


@tanhshrink.vjp
def _(grad, self):
    t = trigonometric.tanh(adjoint(self))
    return mul(grad, mul(t, t))


@composite(
    **activation_metadata(
        lambda self: self / (1 + np.abs(self)), 4, dtype=promote_float, inplace=False, smooth=False
    )
)
def softsign(self: Tensor) -> Tensor:
    """``x / (1 + abs(x))``."""
    return div(self, add(magnitude.abs(self), 1))


softsign.edge("1 at 0", [0.0, 1.0], gradient=[1.0, 0.25])
