"""Checks of values that are a part of the program: an operator that hands its input on, or raises.

A definition that asks Python about values ends a captured graph, and the check would hold for the
values of one call only. This operator is a node like any other. What follows takes its result, so
that no pass removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.inspection import greatest, least
from coredispatch.ops.support.rules import exact
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import (
    ArgumentError,
    DimError,
    DTypeError,
    OpError,
    ShapeError,
)

__all__ = ["checked", "error_of", "refuses_nan"]


def _index(found: Any, low: Any, high: Any) -> Exception:
    return DimError(
        f"index {found} is out of bounds for size {high + 1}", fix=f"use indices from 0 to {high}"
    )


def _class(found: Any, low: Any, high: Any) -> Exception:
    return DimError(
        f"target {found} is out of bounds for {high + 1} classes",
        fix=f"use classes 0 to {high}, or ignore_index",
    )


def _class_number(found: Any, low: Any, high: Any) -> Exception:
    return DimError(
        f"class {found} is out of range for {high + 1} classes",
        fix=f"use classes from 0 to {high}",
    )


def _listed_class(found: Any, low: Any, high: Any) -> Exception:
    return DimError(
        f"target {found} is out of bounds for {high + 1} classes",
        fix=f"use classes 0 to {high}, and -1 after the last",
    )


def _mask(found: Any, low: Any, high: Any) -> Exception:
    return ShapeError(
        f"the mask asks for {found} elements, source has {high}",
        fix=f"give source at least {found} elements",
    )


def _variance(found: Any, low: Any, high: Any) -> Exception:
    return ArgumentError("var has a negative element", fix="give variances of at least 0")


def _weights(name: str) -> Callable[[Any, Any, Any], Exception]:
    return lambda found, low, high: ArgumentError(
        f"{name} has a negative element, {found}", fix="use weights of at least 0"
    )


def _envelope(found: Any, low: Any, high: Any) -> Exception:
    return OpError(
        f"window overlap add min: {found}: the windows leave elements out",
        fix="use a smaller hop_length, or center=True",
    )


def _input_length(found: Any, low: Any, high: Any) -> Exception:
    return RuntimeError(
        f"Expected input_lengths to have value at most {high}, but got value {found} "
        "(while checking arguments for ctc_loss)"
    )


def _target_length(found: Any, low: Any, high: Any) -> Exception:
    if found < 0:
        return RuntimeError(f"target_lengths must not be negative, got {found}")
    return RuntimeError(
        f"Expected tensor to have size at least {found} at dimension 1, but got size {high} "
        "for argument targets"
    )


def _labels(found: Any, low: Any, high: Any) -> Exception:
    return RuntimeError(f"targets hold {high} labels, and target_lengths add up to {found}")


def _repeats(found: Any, low: Any, high: Any) -> Exception:
    if high is None:
        return ShapeError(f"repeats of {found} are negative", fix="repeat 0 times or more")
    return ShapeError(
        f"the repeats add up to {found}, not to output_size={high}", fix="leave output_size out"
    )


def _nan(found: Any, low: Any, high: Any) -> Exception:
    return ArgumentError(
        "the input holds NaN, which no integer stands for", fix="use x.nan_to_num() before"
    )


def _unpooled(found: Any, low: Any, high: Any) -> Exception:
    return RuntimeError(
        f"Found an invalid max index: {found} (output volumes have {high + 1} elements)"
    )


def _probability(found: Any, low: Any, high: Any) -> Exception:
    return ArgumentError(
        f"bernoulli needs probabilities between 0 and 1, and one is {found:.6g}",
        fix="use probabilities from 0 to 1",
    )


def _deviation(found: Any, low: Any, high: Any) -> Exception:
    return ArgumentError(
        f"normal needs standard deviations of 0 or more, and one is {found:.6g}",
        fix="give their absolute values, or the exponential of their logarithms",
    )


_ERRORS: dict[str, Callable[[Any, Any, Any], Exception]] = {
    "index": _index,
    "class": _class,
    "class number": _class_number,
    "listed class": _listed_class,
    "mask": _mask,
    "variance": _variance,
    "fweights": _weights("fweights"),
    "aweights": _weights("aweights"),
    "envelope": _envelope,
    "input_lengths": _input_length,
    "target_lengths": _target_length,
    "labels": _labels,
    "repeats": _repeats,
    "unpooled": _unpooled,
    "nan": _nan,
    "probability": _probability,
    "deviation": _deviation,
}


def error_of(rule: str, found: Any, low: Any, high: Any) -> Exception:
    """The error for a value ``found`` that ``rule`` refuses: for kernels that find it later."""
    return _ERRORS[rule](found, low, high)


def refuses_nan(rule: str) -> bool:
    """Whether NaN is outside of the bounds of ``rule``; elsewhere it passes."""
    return rule == "probability"


def _samples(make: Any) -> Iterator[Sample]:
    yield Sample(make((3, 2)), np.array([0, 2]), 0, 2, "index")
    yield Sample(make((4,)), np.array(3), None, 3, "mask")
    yield Sample(make((2, 3)), np.array([[1.5], [1.0]]), 0.25, None, "variance")
    yield Sample(make((0,)), np.zeros((0,), np.int64), 0, -1, "index")


def _dtype(self: Any, by: Any, *_: Any) -> DType:
    if DType.of(by.dtype).is_complex:
        raise DTypeError("complex numbers lie between no bounds", fix="check their real parts")
    return DType.of(self.dtype)


@composite(
    out=lambda self, *_: tuple(self.shape),
    dtype=_dtype,
    reference=lambda self, *_: self,
    samples=_samples,
    dtypes="all",
    tolerance=exact,
    unbroadcast=False,
    namespace=(),
    method=False,
)
def checked(self: Tensor, by: Tensor, low: float | None, high: float | None, rule: str) -> Tensor:
    """A copy of ``self``, provided that all elements of ``by`` lie in [``low``, ``high``].

    ``rule`` says what the bounds are for, and so which error is raised where an element lies
    outside. Meta tensors pass. The gradient of ``self`` is that of the result.
    """
    if by.numel() and not by.is_meta:
        for found in (least(by), greatest(by)):
            outside = refuses_nan(rule) and found != found
            outside |= (low is not None and found < low) or (high is not None and found > high)
            if outside:
                raise error_of(rule, found, low, high)
    return lazy.clone(self)


checked.vjp(self=lambda grad: grad)
