"""Random tensors. Three primitives draw numbers; everything else is made of them.

Each op draws from ``generator``, or from the default generator of the device. Results repeat for
the same seed, calls and device; see :class:`coredispatch.registry.model.generator.Generator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from coredispatch.ops.creation.factories import given_or_default, given_or_same, sized
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Device, DType, Generator, IntList, Tensor
from coredispatch.ops.support.rules import same_shape
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import Operator, composite, primitive
from coredispatch.registry.model.dtypes import float32, float64, int32, int64
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.scalars import check_interval
from coredispatch.registry.model.sizes import as_size
from coredispatch.registry.model.value import dtype_of

__all__ = [
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random_integers",
    "random_normal",
    "random_uniform",
    "randperm",
]


def _sizes(make: Any) -> Iterator[Sample]:
    for size in ((), (0,), (1,), (17,), (3, 5), (2, 0, 3), (64, 64)):
        yield Sample(size)


def floating_result(*args: Any) -> DType:
    """The dtype asked for (the default one if none); raises unless floating or complex."""
    dtype = given_or_default(*args)
    _require_floating(dtype)
    return dtype


def _require_floating(dtype: DType | None) -> None:
    if dtype is not None and dtype.category < 2:
        raise DTypeError(f"these numbers need a floating dtype, not {dtype}", fix="use randint")


def floating_like(*args: Any) -> DType:
    """The same for the forms that take the dtype of a tensor where none is given."""
    return floating_result(given_or_same(*args))


# ---- primitives ---------------------------------------------------------------------------------

_DRAWN: dict[str, Any] = {
    "differentiable": False,
    "factory": True,
    "random": True,
    "namespace": (),
}


@primitive(out=sized, dtype=floating_result, samples=_sizes, **_DRAWN)
def random_uniform(
    size: IntList,
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers uniform in [low, high), of a floating dtype (the default one)."""


@primitive(out=sized, dtype=floating_result, samples=_sizes, **_DRAWN)
def random_normal(
    size: IntList,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers of the normal distribution; complex ones have variance ``std**2`` in all."""


@primitive(
    out=lambda size, *_: sized(size),
    dtype=lambda size, low, high, dtype, *_: dtype or int64,
    samples=lambda make: (Sample(*s.args, -3, 8) for s in _sizes(make)),
    **_DRAWN,
)
def random_integers(
    size: IntList,
    low: int,
    high: int,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Integers uniform in [low, high), int64 by default. Raises :class:`ArgumentError`."""


def uniform(size: Any, low: float = 0.0, high: float = 1.0, *, dtype: Any, **where: Any) -> Any:
    """Numbers uniform in [low, high), and both parts of complex ones."""
    if dtype is None or not dtype.is_complex:
        return random_uniform(size, low, high, dtype=dtype, **where)
    parts = random_uniform((*size, 2), low, high, dtype=dtype.to_real(), **where)
    return lazy.view_as_complex(parts)


# ---- factories ----------------------------------------------------------------------------------


@composite(
    out=sized,
    dtype=floating_result,
    samples=_sizes,
    differentiable=False,
    factory=True,
    random=True,
)
def rand(
    size: IntList,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers uniform in [0, 1), and so are both parts of complex ones."""
    _require_floating(dtype)
    return uniform(size, dtype=dtype, device=device, generator=generator)


@composite(
    out=sized,
    dtype=floating_result,
    samples=_sizes,
    differentiable=False,
    factory=True,
    random=True,
)
def randn(
    size: IntList,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers of the standard normal distribution."""
    _require_floating(dtype)
    return random_normal(size, dtype=dtype, device=device, generator=generator)


@composite(
    out=lambda low, high, size, *_: sized(size),
    dtype=lambda low, high, size, dtype, *_: dtype or int64,
    samples=lambda make: (Sample(-3, 9, s) for s in ((), (0,), (17,), (3, 5))),
    differentiable=False,
    factory=True,
    random=True,
)
def randint(
    low: int,
    high: int,
    size: IntList,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Integers uniform in [low, high), int64 by default; ``randint(high, size)`` starts at 0."""
    return random_integers(size, low, high, dtype=dtype, device=device, generator=generator)


@randint.overload
def _(
    high: int,
    size: IntList,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    return random_integers(size, 0, high, dtype=dtype, device=device, generator=generator)


def _count(n: int, *_: Any) -> tuple[int, ...]:
    return (as_size(n, "n"),)


@composite(
    out=_count,
    dtype=lambda n, generator, dtype, *_: dtype or int64,
    samples=lambda make: (Sample(n) for n in (0, 1, 17)),
    differentiable=False,
    factory=True,
    random=True,
)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """The numbers from 0 to n-1 in random order, int64 by default."""
    _count(n)
    keys = random_integers((n,), -(1 << 63), 1 << 63, device=device, generator=generator)
    return lazy.argsort(keys).to_dtype(dtype or int64)


def _likes(make: Any) -> Iterator[Sample]:
    for size in ((), (0,), (17,), (3, 5)):
        yield Sample(make(size))


def _like(factory: Operator, draw: Callable[..., Any]) -> Operator:
    """The ``*_like`` form of :func:`rand` or :func:`randn`, whose numbers ``draw`` draws."""

    def like(
        self: Tensor,
        *,
        dtype: DType | None = None,
        device: Device | None = None,
        generator: Generator | None = None,
        memory_format: object = None,
    ) -> Tensor:
        _require_floating(dtype or self.dtype)
        return draw(
            tuple(self.shape),
            dtype=dtype or self.dtype,
            device=device or self.device,
            generator=generator,
        )

    like.__doc__ = f"Like :func:`{factory.name}` in the shape, dtype and device of ``self``."
    return composite(
        name=f"{factory.name}_like",
        out=same_shape,
        dtype=floating_like,
        samples=_likes,
        dtypes="float",
        differentiable=False,
        random=True,
        method=False,
    )(like)


rand_like, randn_like = _like(rand, uniform), _like(randn, random_normal)


@composite(
    out=same_shape,
    dtype=lambda self, low, high, dtype, *_: dtype or DType.of(self.dtype),
    samples=lambda make: (Sample(*x.args, -3, 4) for x in _likes(make)),
    dtypes=(int32, int64, float32, float64),
    differentiable=False,
    random=True,
    method=False,
)
def randint_like(
    self: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    generator: Generator | None = None,
    memory_format: object = None,
) -> Tensor:
    """Like :func:`randint` in the shape, dtype and device of ``self``; one bound is the upper."""
    low, high = (0, low) if high is None else (low, high)
    dtype = dtype or dtype_of(self)
    check_interval(low, high, dtype)
    return random_integers(
        tuple(self.shape),
        low,
        high,
        dtype=dtype,
        device=device or self.device,
        generator=generator,
    )


@randint_like.overload
def _(
    self: Tensor,
    *,
    high: int,
    dtype: DType | None = None,
    device: Device | None = None,
    generator: Generator | None = None,
    memory_format: object = None,
) -> Tensor:
    return randint_like(self, 0, high, dtype=dtype, device=device, generator=generator)
