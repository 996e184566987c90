"""Activation functions: rectifiers and exponential linear units.

Those that training programs are made of have a fused ``*backward_metadata`` operator; the rest are
differentiated through their decompositions or by one line. PyTorch's ``inplace=True`` flag is
accepted by those that have it there.
"""

from __future__ import annotations

from math import nan, prod
from typing import Any

import numpy as np

from coredispatch.ops.elementwise import comparison, magnitude
from coredispatch.ops.elementwise.arithmetic import add, mul
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.casting import common
from coredispatch.ops.support.rules import (
    REAL_NUMBER,
    broadcast,
    exact,
    promote,
    same,
    same_shape,
    ulp,
)
from coredispatch.ops.support.samples import Sample, tensor_pairs, unary, with_options
from coredispatch.registry import Operator, composite
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import ArgumentError, ShapeError
from coredispatch.registry.model.value import dtype_of

FUNCTIONAL = "nn.functional"


def activation_metadata(reference: Any, ulps: float = 8, **more: Any) -> dict[str, Any]:
    """What the elementwise activations share."""
    metadata = {
        "out": same_shape,
        "dtype": same,
        "reference": reference,
        "samples": unary,
        "dtypes": "float",
        "tolerance": ulp(ulps),
        "namespace": FUNCTIONAL,
        "method": False,
        "inplace": True,
    }
    return metadata | more


def backward_metadata(samples: Any = tensor_pairs) -> dict[str, Any]:
    """What the fused backward operators share: (grad, a saved tensor, options)."""
    return {
        "out": broadcast,
        "dtype": promote,
        "samples": samples,
        "dtypes": "float",
        "namespace": (),
        "method": False,
        "smooth": False,
    }


def accept_inplace(op: Operator) -> None:
    """Accept PyTorch's ``inplace`` keyword: ``relu(x, inplace=True)`` is ``relu_(x)``."""

    @op.overload
    def _(self: Tensor, *, inplace: bool) -> Tensor:
        return op.inplace_op(self) if inplace else op(self)

    @op.overload
    def _(self: Tensor, inplace: bool) -> Tensor:
        return op.inplace_op(self) if inplace else op(self)


# ---- rectifiers -------------------------------------------------------------------------------


@composite(
    takes="real",
    **activation_metadata(
        lambda self: np.maximum(self, 0),
        0,
        dtypes=REAL_NUMBER,
        namespace=("", FUNCTIONAL),
        method=True,
        smooth=False,
        tolerance=exact,
    ),
)
def relu(self: Tensor) -> Tensor:
    """Rectifier ``max(self, 0)``; NaN stays NaN. The gradient at 0 is 0, at NaN 1."""
    return magnitude.clamp(self, 0, None)


@relu.vjp
def _(grad, out):
    return threshold_backward(grad, out, 0)


relu.edge("0 at 0", [-1.0, 0.0, 2.0], gradient=[0.0, 0.0, 1.0])
relu.edge("1 at NaN", [-1.0, nan, 2.0], gradient=[0.0, 1.0, 1.0])


accept_inplace(relu)


@composite(
    **backward_metadata(lambda make: (Sample(make(s), make(s), 0) for s in ((), (17,), (3, 5))))
)
def threshold_backward(grad: Tensor, self: Tensor, threshold: Scalar) -> Tensor:
    """0 where ``self <= threshold``, else ``grad``, also where ``self`` is NaN."""
    grad, self = common(promote, grad, self)
    return comparison.where(comparison.le(self, threshold), 0, grad)


threshold_backward.vjp(
    grad=lambda grad, self, threshold: threshold_backward(grad, self, threshold),
    self=lambda grad: lazy.zeros_like(grad),
)


def _of_dtype(self: Any, number: Any) -> Any:
    """``number`` cut off to an integer beside integers, so that they stay integers."""
    integers = dtype_of(self).is_integral and not hasattr(number, "dtype")
    return int(number) if integers else number


@composite(
    takes=REAL_NUMBER,
    **activation_metadata(
        lambda self, threshold, value: np.where(self <= threshold, value, self),
        0,
        # 0.125 is one number in every dtype; half precision holds elements next to 0.1.
        samples=with_options({"threshold": 0.125, "value": 2.0}, {"threshold": 0, "value": 0}),
        namespace=("", FUNCTIONAL),
        smooth=False,
        tolerance=exact,
    ),
    fits=("threshold", "value"),
)
def threshold(self: Tensor, threshold: Scalar, value: Scalar) -> Tensor:
    """``self`` where it exceeds ``threshold``, else ``value``, in the dtype of ``self``."""
    threshold, value = _of_dtype(self, threshold), _of_dtype(self, value)
    return comparison.where(comparison.le(self, threshold), value, self)


@threshold.vjp
def _(grad, self, threshold):
    return threshold_backward(grad, self, threshold)


threshold.edge("0 at the threshold", [0.5, 1.0, 2.0], 1.0, 7.0, gradient=[0.0, 0.0, 1.0])


@threshold.overload
def _(self: Tensor, threshold: Scalar, value: Scalar, inplace: bool) -> Tensor:
    return (_threshold.inplace_op if inplace else _threshold)(self, threshold, value)


# The name of the op is also that of its parameter.
_threshold = threshold


@composite(
    takes="float",
    **activation_metadata(
        lambda self, negative_slope=0.01: np.where(self > 0, self, self * negative_slope),
        2,
        samples=with_options({}, {"negative_slope": 0.2}),
        smooth=False,
    ),
)
def leaky_relu(self: Tensor, negative_slope: float = 0.01) -> Tensor:
    """``self`` where positive, else ``negative_slope * self``."""
    return comparison.where(comparison.gt(self, 0), self, mul(self, negative_slope))


@leaky_relu.vjp
def _(grad, self, negative_slope):
    return leaky_relu_backward(grad, self, negative_slope)


leaky_relu.edge("the slope at 0", [-1.0, 0.0, 2.0], 0.25, gradient=[0.25, 0.25, 1.0])


@leaky_relu.overload
def _(self: Tensor, negative_slope: float = 0.01, *, inplace: bool) -> Tensor:
    return (leaky_relu.inplace_op if inplace else leaky_relu)(self, negative_slope)


@leaky_relu.overload
def _(self: Tensor, negative_slope: float, inplace: bool) -> Tensor:
    return (leaky_relu.inplace_op if inplace else leaky_relu)(self, negative_slope)


@composite(
    **backward_metadata(lambda make: (Sample(make(s), make(s), 0.1) for s in ((), (17,), (3, 5))))
)
def leaky_relu_backward(grad: Tensor, self: Tensor, negative_slope: float) -> Tensor:
    """``grad`` where ``self > 0``, else ``negative_slope * grad``."""
    grad, self = common(promote, grad, self)
    return comparison.where(comparison.gt(self, 0), grad, mul(grad, negative_slope))


leaky_relu_backward.vjp(
    grad=lambda grad, self, negative_slope: leaky_relu_backward(grad, self, negative_slope),
    self=lambda grad: lazy.zeros_like(grad),
)


@composite(
    takes=REAL_NUMBER,
    **activation_metadata(
        lambda self: np.clip(self, 0, 6), 0, dtypes=REAL_NUMBER, smooth=False, tolerance=exact
    ),
)
def relu6(self: Tensor) -> Tensor:
    """``min(max(self, 0), 6)``. The gradient is 0 at both corners."""
    return magnitude.clamp(self, 0, 6)


@relu6.vjp
def _(grad, self):
    return hardtanh_backward(grad, self, 0.0, 6.0)


relu6.edge("0 at the bounds", [0.0, 3.0, 6.0], gradient=[0.0, 1.0, 0.0])


accept_inplace(relu6)


def _hardtanh_shape(self: Any, min_val: float, max_val: float) -> tuple[int, ...]:
    if min_val > max_val:
        raise ArgumentError(
            f"min_val={min_val} must not be above max_val={max_val}", fix="swap the bounds"
        )
    dtype = DType.of(self.dtype)
    if dtype.kind == "u" and min_val <= -1:  # fractions are cut off, as from other numbers
        raise ArgumentError(
            f"min_val={min_val} is negative, and the elements are {dtype.name}",
            fix="use min_val=0, or a signed dtype",
        )
    return same_shape(self)


@composite(
    takes=REAL_NUMBER,
    **activation_metadata(
        lambda self, min_val=-1.0, max_val=1.0: np.clip(self, min_val, max_val),
        0,
        out=_hardtanh_shape,
        samples=with_options({}, {"min_val": -0.5, "max_val": 2.0}),
        smooth=False,
        tolerance=exact,
    ),
)
def hardtanh(self: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """``self`` clamped to ``[min_val, max_val]``, in its dtype. The gradient is 0 at its ends."""
    _hardtanh_shape(self, min_val, max_val)
    min_val, max_val = _of_dtype(self, min_val), _of_dtype(self, max_val)
    return magnitude.clamp(self, min_val, max_val)


@hardtanh.vjp
def _(grad, self, min_val, max_val):
    return hardtanh_backward(grad, self, min_val, max_val)


hardtanh.edge("0 at the bounds", [-1.0, 0.5, 1.0], gradient=[0.0, 1.0, 0.0])


@hardtanh.overload
def _(self: Tensor, min_val: float = -1.0, max_val: float = 1.0, *, inplace: bool) -> Tensor:
    return (hardtanh.inplace_op if inplace else hardtanh)(self, min_val, max_val)


@hardtanh.overload
def _(self: Tensor, min_val: float, max_val: float, inplace: bool) -> Tensor:
    return (hardtanh.inplace_op if inplace else hardtanh)(self, min_val, max_val)


@composite(
    **backward_metadata(lambda make: (Sample(make(s), make(s), -1.0, 1.0) for s in ((17,), (3, 5))))
)
def hardtanh_backward(grad: Tensor, self: Tensor, min_val: float, max_val: float) -> Tensor:
    """0 at the bounds and beyond, else ``grad``, also where ``self`` is NaN."""
    grad, self = common(promote, grad, self)
    outside = comparison.logical_or(comparison.le(self, min_val), comparison.ge(self, max_val))
    return comparison.where(outside, 0, grad)


hardtanh_backward.vjp(
    grad=lambda grad, self, min_val, max_val: hardtanh_backward(grad, self, min_val, max_val),
    self=lambda grad: lazy.zeros_like(grad),
)


def _prelu_shape(self: Any, weight: Any) -> tuple[int, ...]:
    if len(weight.shape) > 1:
        raise ShapeError(
            f"the weight must have at most 1 dimension, got {len(weight.shape)}",
            fix="use a number or a vector of one weight per channel",
        )
    channels = self.shape[1] if len(self.shape) > 1 else 1
    if prod(weight.shape) not in (1, channels):
        raise ShapeError(
            f"{prod(weight.shape)} weights do not fit {channels} channels",
            fix=f"give 1 weight, or {channels}",
        )
    return same_shape(self)


@composite(
    cast="lower",
    takes="float",
    out=_prelu_shape,
    dtype=promote,
    samples=lambda make: (
        Sample(make((3, 5)), make((1,))),
        Sample(make((3, 5)), make((5,))),
        Sample(make((2, 3, 4)), make((3,))),
    ),
    dtypes="float",
    tolerance=ulp(2),
    smooth=False,
    namespace=("", FUNCTIONAL),
)
def prelu(self: Tensor, weight: Tensor) -> Tensor:
    """``self`` where positive, else ``weight * self``.

    ``weight`` is 0-dim or has 1 element, or one for each channel (dim 1) of ``self``. Raises
    ``ShapeError`` otherwise.
    """
    _prelu_shape(self, weight)
    self, weight = common(promote, self, weight)
    if weight.numel() != 1:
        weight = lazy.reshape(weight, (weight.numel(), *(1 for _ in self.shape[2:])))
    elif weight.ndim:
        weight = lazy.reshape(weight, ())
    return prelu_kernel(self, weight)


prelu.edge("the slope at 0", [0.0, -1.0, 1.0], [0.25], gradient=([0.25, 0.25, 1.0], [-1.0]))


@composite(takes="float", **backward_metadata())
def prelu_kernel(self: Tensor, weight: Tensor) -> Tensor:
    """:func:`prelu` of a ``weight`` that broadcasts."""
    self, weight = common(promote, self, weight)
    return comparison.where(comparison.gt(self, 0), self, mul(self, weight))


@composite(
    takes="float",
    **backward_metadata(
        lambda make: (Sample(make(s), make(s), make(s)) for s in ((), (17,), (3, 5)))
    ),
)
def prelu_kernel_backward(grad_output: Tensor, self: Tensor, weight: Tensor) -> Tensor:
    """``grad_output`` where ``self > 0``, else ``weight * grad_output``."""
    grad_output, self, weight = common(promote, grad_output, self, weight)
    return comparison.where(comparison.gt(self, 0), grad_output, mul(grad_output, weight))


prelu_kernel.vjp(
    self=lambda grad, self, weight: prelu_kernel_backward(grad, self, weight),
    weight=lambda grad, self: comparison.where(comparison.gt(self, 0), 0, mul(grad, self)),
)

# At 0 PyTorch's second derivative takes the slope 1, and its first one ``weight``. Both are
# ``weight`` here, so that they agree.
prelu_kernel_backward.vjp(
    grad_output=lambda grad, self, weight: prelu_kernel_backward(grad, self, weight),
    self=lambda grad: lazy.zeros_like(grad),
    weight=lambda grad, grad_output, self: comparison.where(
        comparison.gt(self, 0), 0, mul(grad, grad_output)
    ),
)


def _rrelu_samples(make: Any) -> Any:
    for shape in ((17,), (3, 5), (2, 3, 5)):
        yield Sample(make(shape), 0.1, 0.3, True)


@composite(
    takes="float",
    **activation_metadata(
        None,
        4,
        samples=_rrelu_samples,
        namespace=("", FUNCTIONAL),
        smooth=False,
        random=True,
    ),
)
def rrelu(
    self: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """Leaky rectifier whose slope is drawn from ``[lower, upper]`` for each element.

    Outside training the slope is the middle of the interval.
    """
    if lower > upper:
        raise ArgumentError(
            f"lower={lower} must not be above upper={upper}", fix="swap lower and upper"
        )
    if not training:
        return leaky_relu(self, (lower + upper) / 2)
    return prelu_kernel(self, add(mul(lazy.rand_like(self), upper - lower), lower))


@rrelu.overload
def _(
    self: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    *,
    inplace: bool,
) -> Tensor:
    return (rrelu.inplace_op if inplace else rrelu)(self, lower, upper, training)
