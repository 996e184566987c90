"""Bitwise logic and shifts of integers. On bool tensors they are the logical operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.rules import broadcast, exact, promote, same, same_shape
from coredispatch.ops.support.samples import Sample, int_pairs, positive_pairs, unary
from coredispatch.registry import primitive


def _metadata(reference: Any, **more: Any) -> dict[str, Any]:
    metadata = {
        "out": broadcast,
        "dtype": promote,
        "reference": reference,
        "samples": int_pairs,
        "takes": "bool+int",
        "differentiable": False,
        "tolerance": exact,
        "inplace": True,
    }
    return metadata | more


@primitive(**_metadata(np.bitwise_and))
def bitwise_and(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self & other`` of bool or integer tensors; shapes broadcast."""


@primitive(**_metadata(np.bitwise_or))
def bitwise_or(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self | other`` of bool or integer tensors; shapes broadcast."""


@primitive(**_metadata(np.bitwise_xor))
def bitwise_xor(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self ^ other`` of bool or integer tensors; shapes broadcast."""


@primitive(**_metadata(np.bitwise_not, out=same_shape, dtype=same, samples=unary))
def bitwise_not(self: Tensor) -> Tensor:
    """Elementwise ``~self`` of a bool or integer tensor."""


def _shifts(make: Any) -> Iterator[Sample]:
    """By less than the width of the dtype, and by as much and more."""
    yield from positive_pairs(make)
    width = make.dtype.itemsize * 8
    yield Sample(
        make((4, 5)), np.array([0, width - 1, width, width + 1, 2 * width - 1], make.dtype)
    )


@primitive(**_metadata(np.left_shift, samples=_shifts, takes="int"))
def bitwise_left_shift(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self << other`` of integers; 0 once every bit is shifted out."""


@primitive(**_metadata(np.right_shift, samples=_shifts, takes="int"))
def bitwise_right_shift(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Elementwise ``self >> other`` of integers; the sign bit fills in from the left."""
