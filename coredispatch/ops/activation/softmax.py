"""Softmax and its relatives, and gated linear units: activations over a whole dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch._warnings import warn
from coredispatch.ops.activation import logistic
from coredispatch.ops.elementwise import comparison, exponential
from coredispatch.ops.elementwise.arithmetic import add, mul, neg, sub
from coredispatch.ops.elementwise.division import div
from coredispatch.ops.reduction.extrema import amax, argmax
from coredispatch.ops.reduction.sums import reduced_count, spread, sum
from coredispatch.ops.support import lazy
from coredispatch.ops.support.adjoint import adjoint
from coredispatch.ops.support.annotations import DType, IntList, Tensor
from coredispatch.ops.support.casting import common, floating
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import (
    conditioned,
    normalize_dim,
    promote,
    reduced,
    same,
    same_shape,
)
from coredispatch.ops.support.samples import Sample, nonempty_reductions, rows
from coredispatch.registry import DType as DTypeClass
from coredispatch.registry import Operator, composite
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError
from coredispatch.registry.model.value import dtype_of


def softmax_reference(self: Any, dim: int, dtype: Any = None) -> Any:
    """Softmax of a float64 array."""
    if not np.ndim(self):
        return np.exp(self - self)
    if self.size == 0:
        return self
    e = np.exp(self - np.max(self, axis=dim, keepdims=True))
    return e / np.sum(e, axis=dim, keepdims=True)


def _log_softmax_reference(self: Any, dim: int, dtype: Any = None) -> Any:
    if not np.ndim(self):
        return self - self
    if self.size == 0:
        return self
    x = self - np.max(self, axis=dim, keepdims=True)
    return x - np.log(np.sum(np.exp(x), axis=dim, keepdims=True))


def _along(self: Any, dim: int, *_: Any) -> tuple[int, ...]:
    normalize_dim(dim, len(self.shape))
    return same_shape(self)


def _given_floating(self: Any, dim: Any = None, dtype: Any = None) -> Any:
    own = dtype if dtype is not None else DTypeClass.of(self.dtype)
    if not own.is_floating_point:
        raise DTypeError(
            f"softmax of {own} elements needs a floating dtype",
            fix="pass dtype=cd.float32, or convert with x.float()",
        )
    return own


_SOFTMAX = {
    "out": _along,
    "dtype": _given_floating,
    "samples": rows,
    "dtypes": "float",
    "tolerance": conditioned,
    "cast": "float32_accelerated",
    "namespace": ("", "nn.functional", "special"),
}


def _shifted(x: Any, dim: int, dtype: Any) -> Any:
    """``x`` in ``dtype`` less its maximum along ``dim``, which makes every exponent <= 0."""
    _along(x, dim)
    _given_floating(x, dim, dtype)
    if dtype is not None and dtype is not dtype_of(x):
        x = lazy.to_dtype(x, dtype)
    return sub(x, amax(x, dim, True)) if x.numel() else x


@composite(reference=softmax_reference, **_SOFTMAX)
def softmax(self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """``exp(self) / sum(exp(self))`` along ``dim``, without overflow.

    Args:
        self: floating tensor of any shape.
        dim: the dimension whose slices sum to 1.
        dtype: convert to it first (for integers, or more digits).
    """
    e = exponential.exp(_shifted(self, dim, dtype))
    return div(e, sum(e, dim, True))


@softmax.vjp
def _(grad, out, dim):
    return softmax_backward(grad, out, dim)


@composite(reference=_log_softmax_reference, **_SOFTMAX)
def log_softmax(self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """Logarithm of :func:`softmax` along ``dim``, without overflow or underflow."""
    x = _shifted(self, dim, dtype)
    return sub(x, exponential.log(sum(exponential.exp(x), dim, True)))


@log_softmax.vjp
def _(grad, out, dim):
    return log_softmax_backward(grad, out, dim)


log_softmax.edge(
    "what came in at minus infinity",
    [-float("inf"), 0.0, 1.0],
    0,
    gradient=[1.0, 0.1931757358900147, -1.1931757358900148],
)


def _backward_shape(grad: Any, output: Any, dim: int) -> Any:
    if tuple(grad.shape) != tuple(output.shape):
        raise ShapeError(
            f"a gradient of shape {tuple(grad.shape)} does not fit an output of shape "
            f"{tuple(output.shape)}",
            fix="give both the same shape",
        )
    return _along(grad, dim)


def _backward_samples(make: Any) -> Iterator[Sample]:
    for shape in ((5,), (4, 4), (3, 5), (2, 3, 5)):
        for dim in range(len(shape)):
            yield Sample(make(shape), make(shape), dim)


_BACKWARD = {
    "out": _backward_shape,
    "dtype": promote,
    "unbroadcast": False,
    "samples": _backward_samples,
    "dtypes": "float",
    "tolerance": conditioned,
    "cast": "float32_accelerated",
    "namespace": (),
    "method": False,
}


@composite(**_BACKWARD)
def softmax_backward(grad: Tensor, output: Tensor, dim: int) -> Tensor:
    """Gradient of :func:`softmax` from its output: ``(grad - sum(grad * output)) * output``."""
    grad, output = common(promote, grad, output)
    weighted = mul(grad, output)
    return sub(weighted, mul(output, sum(weighted, dim, True)))


@composite(**_BACKWARD)
def log_softmax_backward(grad: Tensor, output: Tensor, dim: int) -> Tensor:
    """Gradient of :func:`log_softmax` from its output: ``grad - exp(output) * sum(grad)``."""
    grad, output = common(promote, grad, output)
    return sub(grad, mul(exponential.exp(output), sum(grad, dim, True)))


def implicit_dim(ndim: int) -> int:
    """The dim PyTorch's functional softmax takes for None: 0 for 0, 1 and 3 dims, else 1."""
    return 0 if ndim in (0, 1, 3) else 1


def _functional_form(op: Operator) -> None:
    """``nn.functional`` also accepts ``dim=None`` and ``_stacklevel``, which is ignored."""

    @op.overload
    def _(
        self: Tensor, dim: int | None = None, *, _stacklevel: int = 3, dtype: DType | None = None
    ) -> Tensor:
        return op(self, implicit_dim(self.ndim) if dim is None else dim, dtype)


_functional_form(softmax)
_functional_form(log_softmax)


@composite(
    out=_along,
    dtype=_given_floating,
    reference=lambda self, dim, dtype=None: softmax_reference(-self, dim),
    samples=rows,
    dtypes="float",
    tolerance=conditioned,
    namespace="nn.functional",
    method=False,
)
def softmin(self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """``softmax(-self, dim)``."""
    return softmax(neg(self), dim, dtype)


_functional_form(softmin)


@composite(
    samples=lambda make: (Sample(make((4,))), Sample(make((3, 6))), Sample(make((2, 4, 3)), 1)),
    takes="float",
    tolerance=conditioned,
    namespace="nn.functional",
    method=False,
)
def glu(self: Tensor, dim: int = -1) -> Tensor:
    """Gated linear unit: the first half along ``dim`` times the sigmoid of the second.

    Raises ``ShapeError`` when the dimension has odd size (Dauphin et al. 2016,
    arXiv:1612.08083).
    """
    dim = normalize_dim(dim, self.ndim)
    n = _half(self, dim)
    gate = logistic.sigmoid(wide(lazy.narrow(self, dim, n, n)))
    return narrow(mul(wide(lazy.narrow(self, dim, 0, n)), gate), self)


def _half(x: Tensor, dim: int) -> int:
    """Half of the size of a dimension; ShapeError where that is odd."""
    n = x.shape[dim] if x.ndim else 1
    if n % 2:
        raise ShapeError(
            f"glu needs an even size, got {n} in dimension {dim}",
            fix="use a dimension of even size",
        )
    return n // 2


@composite(
    samples=lambda make: (
        Sample(make((2,)), make((4,)), 0),
        Sample(make((3, 3)), make((3, 6)), -1),
        Sample(make((2, 2, 3)), make((2, 4, 3)), 1),
    ),
    takes="float",
    tolerance=conditioned,
    namespace=(),
)
def glu_backward(grad: Tensor, self: Tensor, dim: int) -> Tensor:
    """Gradient of :func:`glu`: of both halves, one behind the other.

    Raises ``ShapeError`` for a dimension of odd size, and a ``grad`` that is not half of ``self``.
    """
    dim = normalize_dim(dim, self.ndim)
    n = _half(self, dim)
    if tuple(grad.shape) != (*self.shape[:dim], n, *self.shape[dim + 1 :]):
        raise ShapeError(
            f"a gradient of shape {tuple(grad.shape)} for an input of shape {tuple(self.shape)}",
            fix=f"give {n} elements in dimension {dim}, and the input's sizes in the others",
        )
    value, logits = lazy.narrow(wide(self), dim, 0, n), lazy.narrow(wide(self), dim, n, n)
    gate = logistic.sigmoid(logits)
    passed = mul(wide(grad), gate)
    slope = mul(mul(passed, value), sub(1, gate))
    return narrow(lazy.cat([passed, slope], dim), self)


@glu.vjp
def _(grad, self, dim):
    return glu_backward(grad, self, dim)


@composite(
    out=same_shape,
    dtype=same,
    samples=lambda make: (
        Sample(make((3, 5))),
        Sample(make((2, 3, 4)), 0.5, dim=1),
        Sample(make((3, 5)), 1.0, True),
    ),
    takes="float",
    random=True,
    smooth=False,
    namespace="nn.functional",
    method=False,
)
def gumbel_softmax(
    self: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution (Jang et al. 2016, arXiv:1611.01144).

    Args:
        self: unnormalized log-probabilities.
        tau: temperature, positive.
        hard: return one-hot samples whose gradient is that of the soft ones.
        eps: without effect, kept from older programs.
        dim: the dimension of the alternatives.
    """
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.")
    if tau <= 0:
        raise ArgumentError(f"tau must be positive, got {tau}", fix="use a tau above 0")
    uniform = lazy.clamp(lazy.rand_like(self), 1e-38, 1 - 2**-24)
    noise = neg(exponential.log(neg(exponential.log(uniform))))
    soft = softmax(div(add(self, noise), tau), dim)
    if not hard:
        return soft
    index = argmax(lazy.detach(soft), dim, True)
    one_hot = lazy.scatter(lazy.zeros_like(soft), dim, index, lazy.ones_like(soft))
    return add(sub(one_hot, lazy.detach(soft)), soft)


# ---- log-sum ----------------------------------------------------------------------------------


def _logsumexp_reference(self: Any, dim: Any, keepdim: bool = False) -> Any:
    dim = dim if np.ndim(self) and dim != () else None
    high = np.max(self, axis=dim, keepdims=True)
    high = np.where(np.isinf(high), 0, high)
    total = np.log(np.sum(np.exp(self - high), axis=dim, keepdims=True)) + high
    return total if keepdim else np.squeeze(total, axis=dim)


def _logsumexp_samples(make: Any) -> Iterator[Sample]:
    for sample in nonempty_reductions(make):
        if len(sample.args) > 1:
            yield sample


@composite(
    out=reduced,
    reference=_logsumexp_reference,
    samples=_logsumexp_samples,
    dtypes="float",
    tolerance=conditioned,
    cast="float32_accelerated",
    namespace=("", "special"),
)
def logsumexp(self: Tensor, dim: IntList, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(self)))`` over ``dim`` without overflow; minus infinity for no elements."""
    like = floating(self)
    x = wide(like)
    if reduced_count(x.shape, dim) == 0:
        return narrow(exponential.log(sum(exponential.exp(x), dim, keepdim)), like)
    # Of complex numbers the real part alone: the logarithm gives the phase in (-pi, pi].
    high = amax(lazy.real(x) if dtype_of(x).is_complex else x, dim, True)
    # An infinite maximum would make inf - inf.
    high = comparison.where(comparison.isinf(high), 0, high)
    total = exponential.log(sum(exponential.exp(sub(x, high)), dim, keepdim))
    total = add(total, high if keepdim else lazy.reshape(high, total.shape))
    return narrow(total, like)


@logsumexp.vjp
def _(grad, out, self, dim, keepdim):
    total = spread(out, self.shape, dim, keepdim)
    # All elements at minus infinity: every share is 0, not exp(nan).
    share = exponential.exp(sub(self, comparison.where(comparison.isinf(total), 0, total)))
    return mul(spread(grad, self.shape, dim, keepdim), adjoint(share))


logsumexp.edge(
    "0 at minus infinity",
    [-float("inf"), 0.0, 1.0],
    (0,),
    gradient=[0.0, 0.2689414213699951, 0.7310585786300049],
)
