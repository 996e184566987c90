"""PyTorch's named convolutions, which fill in the defaults of the general operator."""

from __future__ import annotations

from typing import Any

from coredispatch._warnings import warn_once
from coredispatch.ops.conv.general import convolution
from coredispatch.ops.conv.reference import (
    check_output_padding,
    forward_samples,
    named_reference,
    transposed_size,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import dot
from coredispatch.ops.support.windows import Ints, spatial_tuple
from coredispatch.registry import Operator, composite
from coredispatch.registry.model.errors import ArgumentError, ShapeError


def _batched(input: Tensor, weight: Tensor, n: int) -> bool:
    """Whether ``input`` has a batch dimension. Raises ``ShapeError`` for any other shape."""
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"a {input.ndim}-d input does not have {n} spatial dimensions",
            fix=f"use (C, *spatial) or (N, C, *spatial), {n + 1}-d or {n + 2}-d",
        )
    if weight.ndim != n + 2:
        raise ShapeError(
            f"a {weight.ndim}-d weight does not have {n} spatial dimensions",
            fix=f"use a {n + 2}-d weight",
        )
    return bool(input.ndim == n + 2)


def _convolve(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    n: int,
) -> Tensor:
    stride, dilation = spatial_tuple("stride", stride, n), spatial_tuple("dilation", dilation, n)
    batched = _batched(input, weight, n)
    x = input if batched else input.unsqueeze(0)
    if isinstance(padding, str):
        x, padding = _string_padding(x, weight, stride, padding, dilation, n)
    padding = spatial_tuple("padding", padding, n, least=0)
    y = convolution(x, weight, bias, stride, padding, dilation, False, (0,) * n, groups)
    return y if batched else y.squeeze(0)


def _string_padding(
    x: Tensor, weight: Tensor, stride: Ints, padding: str, dilation: Ints, n: int
) -> tuple[Tensor, Ints]:
    """What ``padding="same"`` or ``"valid"`` means; where a side needs more, ``x`` gets it."""
    if padding not in ("same", "valid"):
        raise ArgumentError(
            f"padding={padding!r} is not known", fix="use 'same', 'valid' or numbers"
        )
    if padding == "valid":
        return x, (0,) * n
    if max(stride) > 1:
        raise ArgumentError("padding='same' needs stride 1", fix="give the padding as numbers")
    total = tuple(d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True))
    if any(t % 2 for t in total):
        warn_once(
            "Using padding='same' with even kernel lengths and odd dilation may require a "
            "zero-padded copy of the input be created"
        )
        x = lazy.pad(x, [m for t in reversed(total) for m in (0, t % 2)])
    return x, tuple(t // 2 for t in total)


def _convolve_transposed(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    n: int,
) -> Tensor:
    stride, dilation = spatial_tuple("stride", stride, n), spatial_tuple("dilation", dilation, n)
    padding = spatial_tuple("padding", padding, n, least=0)
    extra = spatial_tuple("output_padding", output_padding, n, least=0)
    check_output_padding(extra, stride, dilation)
    batched = _batched(input, weight, n)
    x = input if batched else input.unsqueeze(0)
    if weight.ndim == n + 2:
        size = transposed_size(
            tuple(x.shape[2:]), tuple(weight.shape[2:]), stride, padding, dilation, extra
        )
        if min(size) < 1:
            raise ShapeError(f"the output would have size {size}", fix="use less padding")
    y = convolution(x, weight, bias, stride, padding, dilation, True, extra, groups)
    return y if batched else y.squeeze(0)


_NAMED = {
    "cast": "lower",
    "dtypes": "float",
    "tolerance": dot,
    "namespace": ("nn.functional", ""),
}


_SPACE = {1: "one spatial dimension", 2: "two spatial dimensions", 3: "three spatial dimensions"}
_KERNEL = {1: "kL", 2: "kH, kW", 3: "kD, kH, kW"}


def _conv(n: int) -> Operator:
    """``conv{n}d``."""

    def convolved(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: IntList = 1,
        padding: object = 0,
        dilation: IntList = 1,
        groups: int = 1,
    ) -> Tensor:
        return _convolve(input, weight, bias, stride, padding, dilation, groups, n)

    convolved.__doc__ = f"""Convolution over {_SPACE[n]}.

    ``input`` is ``(N, C, ...)`` or ``(C, ...)``, ``weight`` ``(O, C / groups, {_KERNEL[n]})``,
    ``bias`` ``(O,)``. Each option is one int or one per dimension; ``padding`` may be ``"valid"``
    or (at stride 1) ``"same"``. Along a dimension of length ``L`` the result has
    ``(L + 2 * padding - dilation * (k - 1) - 1) // stride + 1`` positions. Raises ``ShapeError``
    where channels, kernel or bias do not fit.
    """
    metadata = {"reference": named_reference(n, False), "samples": forward_samples(n), **_NAMED}
    return composite(name=f"conv{n}d", **metadata)(convolved)


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)


def _conv_transpose(n: int) -> Operator:
    """``conv_transpose{n}d``."""

    def convolved(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: IntList = 1,
        padding: IntList = 0,
        output_padding: IntList = 0,
        groups: int = 1,
        dilation: IntList = 1,
    ) -> Tensor:
        return _convolve_transposed(
            input, weight, bias, stride, padding, output_padding, groups, dilation, n
        )

    convolved.__doc__ = f"""The gradient of :func:`conv{n}d`: convolution, transposed.

    ``input`` is ``(N, C, ...)`` or ``(C, ...)``, ``weight`` ``(C, O / groups, {_KERNEL[n]})``.
    Along a dimension of length ``L`` the result has
    ``(L - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1`` positions. Raises
    ``ShapeError`` where channels or bias do not fit, ``ArgumentError`` for an ``output_padding``
    not below the stride or the dilation.
    """
    samples = forward_samples(n, transposed=True)
    metadata = {"reference": named_reference(n, True), "samples": samples, **_NAMED}
    return composite(name=f"conv_transpose{n}d", **metadata)(convolved)


conv_transpose1d, conv_transpose2d = _conv_transpose(1), _conv_transpose(2)
conv_transpose3d = _conv_transpose(3)
