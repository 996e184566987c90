"""The windows of a convolution: what the shape rule and the kernel both compute."""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import ShapeError

__all__ = ["output_size", "pair"]

Pair = tuple[int, int]


def output_size(size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Pair:
    """Height and width of the output. Raises ShapeError where there are no windows."""
    if min(kernel) < 1:
        raise ShapeError(
            f"a kernel of {kernel[0]} by {kernel[1]} is empty",
            fix="use kernel sizes of at least 1",
        )
    if min(stride) < 1 or min(dilation) < 1 or min(padding) < 0:
        raise ShapeError(
            f"stride {stride}, padding {padding} and dilation {dilation}",
            fix="stride and dilation are at least 1, padding at least 0",
        )
    pairs = zip(size, kernel, stride, padding, dilation, strict=True)
    height, width = ((x + 2 * p - d * (k - 1) - 1) // s + 1 for x, k, s, p, d in pairs)
    if min(height, width) < 1:
        raise ShapeError(f"the kernel {kernel} reaches beyond the padded input")
    return height, width


def pair(value: Any) -> tuple[int, int]:
    """One number for both spatial dimensions, or one for each. Raises ShapeError otherwise."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    if len(numbers) not in (1, 2):
        raise ShapeError(f"{numbers} has {len(numbers)} entries for 2 spatial dimensions")
    return numbers * 2 if len(numbers) == 1 else numbers
