"""PyTorch's named convolutions, which fill in the defaults of the general operator."""

from __future__ import annotations

from typing import Any

from coredispatch.ops.conv.general import convolution
from coredispatch.ops.conv.reference import forward_samples, named_reference
from coredispatch.ops.support import late
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import dot
from coredispatch.ops.support.windows import Ints, spatial_tuple
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, ShapeError


def _batched(input: Tensor, weight: Tensor, n: int) -> bool:
    """Whether ``input`` has a batch dimension. Raises ``ShapeError`` for any other shape."""
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"a {input.ndim}-d input for {n} spatial dimensions",
            fix=f"use (C, *spatial) or (N, C, *spatial), {n + 1}-d or {n + 2}-d",
        )
    if weight.ndim != n + 2:
        raise ShapeError(
            f"a {weight.ndim}-d weight for {n} spatial dimensions", fix=f"use a {n + 2}-d weight"
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
        raise ArgumentError(f"padding={padding!r}", fix="use 'same', 'valid' or numbers")
    if padding == "valid":
        return x, (0,) * n
    if max(stride) > 1:
        raise ArgumentError("padding='same' needs stride 1", fix="give the padding as numbers")
    total = tuple(d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True))
    if any(t % 2 for t in total):
        x = late.pad(x, [m for t in reversed(total) for m in (0, t % 2)])
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
    batched = _batched(input, weight, n)
    x = input if batched else input.unsqueeze(0)
    y = convolution(x, weight, bias, stride, padding, dilation, True, extra, groups)
    return y if batched else y.squeeze(0)


_NAMED = {
    "cast": "lower",
    "dtypes": "float",
    "tolerance": dot,
    "namespace": ("nn.functional", ""),
}


@composite(reference=named_reference(1, False), samples=forward_samples(1), **_NAMED)
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntList = 1,
    padding: object = 0,
    dilation: IntList = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over one spatial dimension.

    ``input`` is ``(N, C, L)`` or ``(C, L)``, ``weight`` ``(O, C / groups, kL)``, ``bias``
    ``(O,)``. ``padding`` is a number, ``"valid"`` or (at stride 1) ``"same"``. The result has
    ``(L + 2 * padding - dilation * (kL - 1) - 1) // stride + 1`` positions. Raises
    ``ShapeError`` where channels, kernel or bias do not fit.
    """
    return _convolve(input, weight, bias, stride, padding, dilation, groups, 1)


@composite(reference=named_reference(2, False), samples=forward_samples(2), **_NAMED)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntList = 1,
    padding: object = 0,
    dilation: IntList = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over two spatial dimensions; ``weight`` is ``(O, C / groups, kH, kW)``.

    Options and errors are those of :func:`conv1d`; each may be one int or one per dimension.
    """
    return _convolve(input, weight, bias, stride, padding, dilation, groups, 2)


@composite(reference=named_reference(3, False), samples=forward_samples(3), **_NAMED)
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntList = 1,
    padding: object = 0,
    dilation: IntList = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over three spatial dimensions; ``weight`` is ``(O, C / groups, kD, kH, kW)``.

    Options and errors are those of :func:`conv1d`; each may be one int or one per dimension.
    """
    return _convolve(input, weight, bias, stride, padding, dilation, groups, 3)


@composite(
    reference=named_reference(1, True), samples=forward_samples(1, transposed=True), **_NAMED
)
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntList = 1,
    padding: IntList = 0,
    output_padding: IntList = 0,
    groups: int = 1,
    dilation: IntList = 1,
) -> Tensor:
    """Transposed convolution over one spatial dimension: the gradient of :func:`conv1d`.

    ``input`` is ``(N, C, L)`` or ``(C, L)``, ``weight`` ``(C, O / groups, kL)``. The result has
    ``(L - 1) * stride - 2 * padding + dilation * (kL - 1) + output_padding + 1`` positions.
    Raises ``ShapeError`` where channels or bias do not fit, ``ArgumentError`` for an
    ``output_padding`` not below the stride or the dilation.
    """
    return _convolve_transposed(
        input, weight, bias, stride, padding, output_padding, groups, dilation, 1
    )


@composite(
    reference=named_reference(2, True), samples=forward_samples(2, transposed=True), **_NAMED
)
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntList = 1,
    padding: IntList = 0,
    output_padding: IntList = 0,
    groups: int = 1,
    dilation: IntList = 1,
) -> Tensor:
    """Transposed convolution over two spatial dimensions; see :func:`conv_transpose1d`."""
    return _convolve_transposed(
        input, weight, bias, stride, padding, output_padding, groups, dilation, 2
    )


@composite(
    reference=named_reference(3, True), samples=forward_samples(3, transposed=True), **_NAMED
)
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntList = 1,
    padding: IntList = 0,
    output_padding: IntList = 0,
    groups: int = 1,
    dilation: IntList = 1,
) -> Tensor:
    """Transposed convolution over three spatial dimensions; see :func:`conv_transpose1d`."""
    return _convolve_transposed(
        input, weight, bias, stride, padding, output_padding, groups, dilation, 3
    )
