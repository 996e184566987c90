"""``coredispatch.nn.functional``: the operators of that namespace, by name.

A function is an operator of the table; what stands here besides are the few forms that are made
of operators and of Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.argument_types import IntList
from coredispatch.frontend.operators import operators
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import ArgumentError

_operators = operators("nn.functional")
globals().update(_operators)


def unfold(
    input: Tensor,
    kernel_size: IntList,
    dilation: IntList = 1,
    padding: IntList = 0,
    stride: Any = 1,
) -> Tensor:
    """Each window of ``(N, C, H, W)`` as a column: ``(N, C * kernel positions, windows)``."""
    return TABLE.operator("im2col")(input, kernel_size, dilation, padding, stride)


def fold(
    input: Tensor,
    output_size: IntList,
    kernel_size: IntList,
    dilation: IntList = 1,
    padding: IntList = 0,
    stride: Any = 1,
) -> Tensor:
    """Columns added into images of ``output_size``; the adjoint of :func:`unfold`."""
    options = (output_size, kernel_size, dilation, padding, stride)
    return TABLE.operator("col2im")(input, *options)


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The older name of :func:`interpolate`."""
    return _operators["interpolate"](input, size, scale_factor, mode, align_corners)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: IntList,
    stride: Any = None,
    ceil_mode: bool = False,
) -> Tensor:
    """``(sum x^p)^(1/p)`` of each window, ``p = norm_type``."""
    sizes = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
    mean = _operators["avg_pool2d"](input.pow(norm_type), sizes, stride, 0, ceil_mode)
    total = mean * (sizes[0] * sizes[1])
    return (total.sign() * total.abs().relu()).pow(1.0 / norm_type)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """:func:`triplet_margin_loss` with any distance."""
    distance = distance_function or _operators["pairwise_distance"]
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    loss = (near - far + margin).clamp_min(0)
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ArgumentError(f"reduction={reduction!r}", fix="use 'mean', 'sum' or 'none'")
    return loss.mean() if reduction == "mean" else loss.sum()


def __getattr__(name: str) -> Any:
    """Functions that a plugin brought along later."""
    found = operators("nn.functional").get(name) if not name.startswith("__") else None
    if found is None:
        raise AttributeError(f"module 'coredispatch.nn.functional' has no attribute {name!r}")
    return found


__all__ = sorted(
    {
        *_operators,
        "fold",
        "lp_pool2d",
        "triplet_margin_with_distance_loss",
        "unfold",
        "upsample",
    }
)
