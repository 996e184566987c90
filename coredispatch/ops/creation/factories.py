"""Factories: tensors made of sizes and numbers.

A factory has no tensor argument, so its ``device`` names the backend. Without ``dtype`` the
result has the default floating dtype, or the one the numbers call for (:func:`full`,
:func:`arange`). The ``*_like`` forms take shape, dtype and device from a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Device, DType, IntList, Scalar, Tensor
from coredispatch.ops.support.rules import exact, same_shape
from coredispatch.ops.support.samples import Sample, unary
from coredispatch.registry import Operator, composite, primitive
from coredispatch.registry.model.dtypes import default_dtype, scalar_dtype
from coredispatch.registry.model.errors import ArgumentError
from coredispatch.registry.model.sizes import as_sizes
from coredispatch.registry.model.spelling import keeps_order

# ---- rules --------------------------------------------------------------------------------------


def sized(size: Any, *_: Any) -> tuple[int, ...]:
    """Shape rule of ``op(size, ...)``; raises :class:`ArgumentError` for an impossible length."""
    return as_sizes(size)


def given_or_default(*args: Any) -> DType:
    """Dtype rule of factories: the ``dtype`` argument, else the default floating dtype."""
    return next((a for a in args if isinstance(a, DType)), default_dtype())


def given_or_same(self: Any, *args: Any) -> DType:
    """Dtype rule of ``*_like``: the ``dtype`` argument, else the tensor's."""
    return next((a for a in args if isinstance(a, DType)), DType.of(self.dtype))


def number(x: Any) -> Any:
    """A Python number; one-element tensors give theirs."""
    return x.item() if hasattr(x, "item") else x


def _sizes(make: Any) -> Iterator[Sample]:
    for size in ((), (0,), (1,), (17,), (3, 5), (2, 0, 3), (2, 3, 4, 5)):
        yield Sample(size)


def _filled_sizes(make: Any) -> Iterator[Sample]:
    for sample in _sizes(make):
        yield Sample(*sample.args, 1.5)
    yield Sample((2, 3), 7)
    yield Sample((2, 3), True)


def _bad_sizes(make: Any) -> Iterator[tuple[Sample, type[Exception]]]:
    yield Sample((2, -1)), ArgumentError


def _full_dtype(size: Any, fill_value: Any, dtype: Any, *_: Any) -> DType:
    return scalar_dtype(number(fill_value)) if dtype is None else dtype


# ---- constants ----------------------------------------------------------------------------------


@primitive(
    out=sized,
    dtype=_full_dtype,
    reference=np.full,
    samples=_filled_sizes,
    tolerance=exact,
    differentiable=False,
    factory=True,
    fits=("fill_value",),
)
def full(
    size: IntList, fill_value: Scalar, *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """A tensor of shape ``size`` with ``fill_value`` everywhere.

    Without ``dtype``: bool for a bool, int64 for an int, the default floating dtype (or its
    complex partner) otherwise. Raises :class:`ArgumentError` for a negative size.
    """


@composite(
    out=sized,
    dtype=given_or_default,
    reference=np.zeros,
    samples=_sizes,
    errors=_bad_sizes,
    tolerance=exact,
    differentiable=False,
    factory=True,
)
def zeros(size: IntList, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """A tensor of shape ``size`` filled with 0, of the default floating dtype if none is given."""
    return full(size, 0, dtype=dtype or default_dtype(), device=device)


@composite(
    out=sized,
    dtype=given_or_default,
    reference=np.ones,
    samples=_sizes,
    errors=_bad_sizes,
    tolerance=exact,
    differentiable=False,
    factory=True,
)
def ones(size: IntList, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """A tensor of shape ``size`` filled with 1, of the default floating dtype if none is given."""
    return full(size, 1, dtype=dtype or default_dtype(), device=device)


@composite(
    out=sized,
    dtype=given_or_default,
    samples=_sizes,
    errors=_bad_sizes,
    differentiable=False,
    factory=True,
)
def empty(size: IntList, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """A tensor of shape ``size`` whose elements are whatever was in memory (or 0)."""
    return full(size, 0, dtype=dtype or default_dtype(), device=device)


@composite(
    out=same_shape,
    dtype=given_or_same,
    reference=lambda self, fill_value: np.full_like(self, fill_value),
    samples=lambda make: (Sample(s.args[0], 1) for s in unary(make)),
    tolerance=exact,
    differentiable=False,
    method=False,
    fits=("fill_value",),
)
def full_like(self: Tensor, fill_value: Scalar, *, dtype: DType | None = None) -> Tensor:
    """A tensor with the shape, dtype and device of ``self`` and ``fill_value`` everywhere.

    The keywords ``dtype`` and ``device`` replace those of ``self``. ``memory_format``: None or
    ``preserve_format`` keeps the order of dense strides, where the backend has strides.
    """
    return full(tuple(self.shape), fill_value, dtype=dtype or self.dtype, device=self.device)


def _like(factory: Operator, what: str, **metadata: Any) -> Operator:
    """The ``*_like`` form of a factory that needs no more than a size."""

    def like(self: Tensor, *, dtype: DType | None = None) -> Tensor:
        return factory(tuple(self.shape), dtype=dtype or self.dtype, device=self.device)

    like.__doc__ = f"A tensor {what} with the shape, dtype and device of ``self``."
    metadata = {"out": same_shape, "dtype": given_or_same, "samples": unary, **metadata}
    op: Operator = composite(
        name=f"{factory.name}_like", differentiable=False, method=False, **metadata
    )(like)
    _accept_device(op, factory)
    return op


def _accept_device(like: Operator, factory: Any) -> None:
    """Let a ``*_like`` op take PyTorch's other keywords; they change device or are defaults."""

    @like.overload
    def _(
        self: Tensor,
        *,
        dtype: DType | None = None,
        device: Device | None = None,
        memory_format: object = None,
        layout: object = None,
        requires_grad: bool = False,
    ) -> Tensor:
        if device is None or device == self.device:
            made = like(self, dtype=dtype)
        else:
            made = factory(tuple(self.shape), dtype=dtype or self.dtype, device=device)
        made = _laid_out(made, memory_format)
        return made.requires_grad_() if requires_grad else made


def _laid_out(made: Tensor, memory_format: Any) -> Tensor:
    """``made``, or where a memory format is asked for, the same in it."""
    if keeps_order(memory_format):
        return made
    found: Tensor = lazy.contiguous(made, memory_format=memory_format)
    return found


zeros_like = _like(zeros, "of zeros", reference=np.zeros_like, tolerance=exact)
ones_like = _like(ones, "of ones", reference=np.ones_like, tolerance=exact)
empty_like = _like(empty, "of arbitrary elements")


@full_like.overload
def _(
    self: Tensor,
    fill_value: Scalar,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    memory_format: object = None,
    layout: object = None,
    requires_grad: bool = False,
) -> Tensor:
    if device is None or device == self.device:
        made = full_like(self, fill_value, dtype=dtype)
    else:
        made = full(tuple(self.shape), fill_value, dtype=dtype or self.dtype, device=device)
    made = _laid_out(made, memory_format)
    return made.requires_grad_() if requires_grad else made


# ---- matrices -----------------------------------------------------------------------------------


__all__ = [
    "empty",
    "empty_like",
    "full",
    "full_like",
    "given_or_default",
    "given_or_same",
    "number",
    "ones",
    "ones_like",
    "sized",
    "zeros",
    "zeros_like",
]
