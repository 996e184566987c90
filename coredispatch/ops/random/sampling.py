"""Samples of distributions whose parameters are tensors."""

from __future__ import annotations

from typing import Any

from coredispatch.ops.elementwise.checked import error_of
from coredispatch.ops.random.factories import rand_like, random_normal, random_uniform
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Device, DType, Generator, IntList, Scalar, Tensor
from coredispatch.ops.support.inspection import all_true
from coredispatch.ops.support.rules import broadcast_shapes, same, same_shape
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import float32, int64
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError

__all__ = [
    "bernoulli",
    "multinomial",
    "normal",
]


def _drawn_in(x: Any) -> DType:
    """The dtype of ``x``, with the resolution of float32 at least."""
    return x.dtype if x.dtype.is_floating_point and x.dtype.itemsize > 4 else float32


def _uniform_like(x: Any, generator: Any) -> Any:
    return random_uniform(tuple(x.shape), dtype=_drawn_in(x), device=x.device, generator=generator)


@composite(
    out=same_shape,
    dtype=same,
    samples=lambda make: (Sample(make(s, low=0.0, high=1.0)) for s in ((), (5,), (3, 5))),
    takes="float",
    random=True,
)
def bernoulli(self: Tensor, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that ``self`` holds, else 0, in the dtype of ``self``.

    ``bernoulli(x, p)`` takes one probability for all elements. Raises :class:`ArgumentError` for
    a probability outside [0, 1]. The gradient is zero.
    """
    p = lazy.checked(self, self, 0, 1, "probability")
    return lazy.lt(_uniform_like(self, generator), p).to_dtype(self.dtype)


bernoulli.vjp(self=lambda grad: lazy.zeros_like(grad))


@bernoulli.overload
def _(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    if not 0 <= p <= 1:
        raise ArgumentError(
            f"bernoulli needs a probability between 0 and 1, got {p}",
            fix="use a probability from 0 to 1",
        )
    # Of the tensor rather than of its shape: what wraps it draws for itself.
    drawn = rand_like(self, dtype=_drawn_in(self), generator=generator)
    return lazy.lt(drawn, p).to_dtype(self.dtype)


@composite(
    samples=lambda make: (
        Sample(make((17,)), 2.0),
        Sample(0.5, make.positive((3, 5))),
        Sample(make((3, 1)), make.positive((1, 5))),
    ),
    dtypes="float",
    random=True,
)
def normal(
    mean: Tensor | Scalar, std: Tensor | Scalar = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Numbers of the normal distributions that ``mean`` and ``std`` (broadcast) name.

    ``normal(mean, std, size)`` takes two numbers and a shape. The gradients are zero: what is
    to be differentiated is ``mean + std * randn_like(mean)``.
    """
    tensors = [x for x in (mean, std) if hasattr(x, "shape")]
    if not tensors:
        raise DTypeError("normal of two numbers needs a size", fix="use normal(mean, std, size)")
    size = broadcast_shapes([tuple(x.shape) for x in tensors])
    std = _checked_std(std)
    like = tensors[0]
    drawn = random_normal(size, dtype=like.dtype, device=like.device, generator=generator)
    return drawn * std + mean


normal.vjp(
    mean=lambda grad: lazy.zeros_like(grad),
    std=lambda grad: lazy.zeros_like(grad),
)


@normal.overload
def _(
    mean: float,
    std: float,
    size: IntList,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | None = None,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    return random_normal(
        size, mean, _checked_std(std), dtype=dtype, device=device, generator=generator
    )


def _checked_std(std: Any) -> Any:
    """``std``, which is not negative."""
    if hasattr(std, "shape"):
        return lazy.checked(std, std, 0, None, "deviation")
    if std < 0:
        raise error_of("deviation", std, 0, None)
    return std


def _multinomial_shape(self: Any, num_samples: int, replacement: bool = False, *_: Any) -> Any:
    sizes = tuple(self.shape)
    if len(sizes) not in (1, 2):
        raise ShapeError(
            f"multinomial takes a vector or a matrix of weights, got shape {sizes}",
            fix="reshape the weights to (*, categories)",
        )
    if num_samples <= 0 or (not replacement and num_samples > sizes[-1]):
        raise ArgumentError(
            f"{num_samples} samples cannot be drawn from {sizes[-1]} categories"
            + ("" if replacement else " without replacement"),
            fix="use 0 < num_samples <= categories, or replacement=True",
        )
    return (*sizes[:-1], num_samples)


@composite(
    out=_multinomial_shape,
    dtype=lambda *_: int64,
    samples=lambda make: (
        Sample(make.positive((5,)), 3),
        Sample(make.positive((2, 5)), 7, True),
    ),
    takes="float",
    differentiable=False,
    random=True,
)
def multinomial(
    self: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Category numbers drawn with the weights in each row of ``self``, int64.

    The weights need not add up to 1. Raises :class:`ArgumentError` for negative or non-finite
    weights, or where too few are positive.
    """
    sizes = _multinomial_shape(self, num_samples, replacement)
    weights = self.detach().to_dtype(_drawn_in(self))
    if not all_true(lazy.isfinite(weights) & lazy.ge(weights, 0)):
        raise ArgumentError(
            "weights must be finite and not negative", fix="use finite weights of at least 0"
        )
    needed = 1 if replacement else num_samples
    if not all_true(lazy.ge(lazy.sum(lazy.gt(weights, 0), -1), needed)):
        raise ArgumentError(
            f"each row needs at least {needed} positive weight(s)",
            fix="use fewer samples, or replacement=True",
        )
    if not replacement:
        # The greatest of weight / exponential: Efraimidis and Spirakis (2006).
        clocks = -lazy.log1p(-_uniform_like(weights, generator))
        keys = lazy.masked_fill(weights / clocks, lazy.eq(weights, 0), -1.0)
        return lazy.topk(keys, num_samples, -1)[1]
    bounds = lazy.cumsum(weights, -1)
    drawn = random_uniform(sizes, dtype=weights.dtype, device=self.device, generator=generator)
    drawn = drawn * bounds[..., -1:]
    return lazy.searchsorted(bounds, drawn, right=True)
