"""Exponential linear units."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.ops.activation.rectifiers import (
    FUNCTIONAL,
    accept_inplace,
    activation_metadata,
    backward_metadata,
)
from coredispatch.ops.elementwise import comparison, exponential, magnitude
from coredispatch.ops.elementwise.arithmetic import mul
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import promote
from coredispatch.ops.support.samples import Sample, with_options
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError

#: a decomposed expm1 rounds up to four times, the two factors once each
_ULPS = 6


def _elu_reference(self: Any, alpha: float = 1.0) -> Any:
    return np.where(self > 0, self, alpha * np.expm1(np.where(self > 0, 0, self)))


@composite(
    takes="float",
    **activation_metadata(
        _elu_reference, _ULPS, samples=with_options({}, {"alpha": 0.5}), smooth=False
    ),
)
def elu(self: Tensor, alpha: float = 1.0) -> Tensor:
    """``self`` where positive, else ``alpha * (exp(self) - 1)``."""
    return _elu(self, alpha, 1.0, 1.0)


elu.edge("the scale at 0", [0.0, 0.0, 1.0], gradient=[1.0, 1.0, 1.0])


def _elu(x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    given, x = x, wide(x)
    below = mul(exponential.expm1(mul(magnitude.clamp(x, None, 0), input_scale)), alpha * scale)
    above = mul(x, scale) if scale != 1 else x
    # At -0.0 the line is taken, which keeps the sign.
    return narrow(comparison.where(comparison.lt(x, 0), below, above), given)


@elu.vjp
def _(grad, self, alpha):
    return elu_backward(grad, self, alpha, 1.0, 1.0)


@elu.overload
def _(self: Tensor, alpha: float = 1.0, *, inplace: bool) -> Tensor:
    return (elu.inplace_op if inplace else elu)(self, alpha)


@composite(
    **backward_metadata(
        lambda make: (Sample(make(s), make(s), 0.5, 1.2, 0.7) for s in ((17,), (3, 5)))
    )
)
def elu_backward(
    grad_output: Tensor, self: Tensor, alpha: float, scale: float, input_scale: float
) -> Tensor:
    """Gradient of ``scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1))``."""
    grad_output, self = common(promote, grad_output, self)
    below = exponential.exp(mul(magnitude.clamp(self, None, 0), input_scale))
    slope = mul(below, alpha * scale * input_scale)
    return mul(grad_output, comparison.where(comparison.gt(self, 0), scale, slope))


def _elu_second(
    grad: Any, grad_output: Any, self: Any, alpha: float, scale: float, input_scale: float
) -> Any:
    """The slope of the slope: 0 from 0 on, as in PyTorch."""
    product = mul(mul(grad, grad_output), input_scale)
    second = elu_backward(product, self, alpha, scale, input_scale)
    return comparison.where(comparison.lt(self, 0), second, 0)


elu_backward.vjp(
    grad_output=lambda grad, self, alpha, scale, input_scale: elu_backward(
        grad, self, alpha, scale, input_scale
    ),
    self=_elu_second,
)


_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@composite(
    takes="float",
    **activation_metadata(
        lambda self: _SELU_SCALE * _elu_reference(self, _SELU_ALPHA),
        _ULPS,
        namespace=("", FUNCTIONAL),
        smooth=False,
    ),
)
def selu(self: Tensor) -> Tensor:
    """Self-normalizing unit: a scaled :func:`elu` (Klambauer et al. 2017, arXiv:1706.02515)."""
    return _elu(self, _SELU_ALPHA, _SELU_SCALE, 1.0)


@selu.vjp
def _(grad, self):
    return elu_backward(grad, self, _SELU_ALPHA, _SELU_SCALE, 1.0)


selu.edge("the exponential's at 0", [0.0, 1.0], gradient=[1.7580993408473766, 1.0507009873554805])


accept_inplace(selu)


@composite(
    takes="float",
    **activation_metadata(
        lambda self, alpha=1.0: np.where(
            self > 0, self, alpha * np.expm1(np.where(self > 0, 0, self) / alpha)
        ),
        _ULPS,
        samples=with_options({}, {"alpha": 0.5}),
        namespace=("", FUNCTIONAL),
        smooth=False,
    ),
)
def celu(self: Tensor, alpha: float = 1.0) -> Tensor:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`` (Barron 2017, arXiv:1704.07483)."""
    if alpha == 0:
        raise ArgumentError("alpha must not be 0", fix="use another alpha")
    return _elu(self, alpha, 1.0, 1.0 / alpha)


@celu.vjp
def _(grad, self, alpha):
    return elu_backward(grad, self, alpha, 1.0, 1.0 / alpha)


celu.edge("1 at 0", [0.0, 1.0], gradient=[1.0, 1.0])


@celu.overload
def _(self: Tensor, alpha: float = 1.0, *, inplace: bool) -> Tensor:
    return (celu.inplace_op if inplace else celu)(self, alpha)
